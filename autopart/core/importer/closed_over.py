"""Values of a trace around the function, which it closes over: no argument brings them in.

    jax.jit(lambda y: ap.jit(lambda x: x + y, mesh)(x))      y: refused, with the line that reads it
    jax.jit(lambda y: ap.jit(lambda x, y: x + y, mesh)(x, y))     what to write

Arrays that are closed over are constants of the module (`large_constants.py`); these have no value yet.
"""

from __future__ import annotations

from typing import Any

from autopart.base.errors import ProgramError
from autopart.core.importer.jaxprs import closed_over, source_line


def check_closed_over(name: str, traced: Any) -> None:
    """Raises `ProgramError` where a `jax.stages.Traced`, of the function `name`, reads a value of a trace around it."""
    values = {id(variable): value for variable, value in closed_over(traced)}
    if not values:
        return
    reads = ((values[id(v)], source_line(e)) for e in traced.jaxpr.eqns for v in e.invars if id(v) in values)
    value, line = next(reads, (next(iter(values.values())), "it is returned as it is"))
    raise ProgramError(
        f"{name} closes over a traced value: {value.dtype}{list(value.shape)}",
        why=f"it belongs to a jax.jit, grad, vmap or scan around the call, and no argument brings it in; {line}",
        hint=f"pass it as an argument of {name}",
    )
