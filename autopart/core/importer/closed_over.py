"""Values of a trace around the function, which it closes over: no argument brings them in.

    jax.jit(lambda y: ap.jit(lambda x: x + y, mesh)(x))      y: refused, with the line that reads it
    jax.jit(lambda y: ap.jit(lambda x, y: x + y, mesh)(x, y))     what to write

Arrays that are closed over are constants of the program; these have no value yet.
"""

from __future__ import annotations

from typing import Any

from autopart.core.errors import ProgramError
from autopart.core.importer.jaxprs import closed_over, source_line


def check_closed_over(name: str, traced: Any) -> None:
    """Raises `ProgramError` where the function `name`, as jax traced it, reads a value of a trace around it."""
    values = {id(variable): value for variable, value in closed_over(traced)}
    if not values:
        return
    readers = (e for e in traced.jaxpr.eqns if any(id(v) in values for v in e.invars))
    reader = next(readers, None)
    used: Any = (
        next(iter(values.values())) if reader is None else next(values[id(v)] for v in reader.invars if id(v) in values)
    )
    raise ProgramError(
        f"{name} closes over a traced value: {used.dtype}{list(used.shape)}",
        why="it belongs to a jax.jit, grad, vmap or scan around the call, and no argument brings it in; "
        + (source_line(reader) if reader else "it is returned as it is"),
        hint=f"pass it as an argument of {name}",
    )
