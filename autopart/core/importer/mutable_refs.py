"""Mutable references of jax (`jax.new_ref`) that a function closes over: state that is no argument and no output.

    count = jax.new_ref(0.0)
    def step(x): count[...] += 1; return x      refused with the line
    def step(x): r = jax.new_ref(x); ...        a reference that lives inside the function is written out by jax

Tactics lay out arguments and outputs, and a call places the former; a reference that is neither has no layout to get.
"""

from __future__ import annotations

from typing import Any

import jax

from autopart.base.errors import ProgramError
from autopart.core.importer.jaxprs import source_line


def is_reference(value: Any) -> bool:
    """True for what `jax.new_ref` returns."""
    return isinstance(value, jax.Ref)


def check_references(name: str, jaxpr: Any) -> None:
    """Raises `ProgramError` where the closed jaxpr of the function `name` uses a reference from outside of it."""
    pairs = zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True)
    found = {id(variable): const for variable, const in pairs if is_reference(const)}
    for equation in jaxpr.eqns if found else ():
        used = [found[id(variable)] for variable in equation.invars if id(variable) in found]
        if used:
            raise ProgramError(
                f"{name} closes over a mutable reference: {used[0].dtype}{list(used[0].shape)}",
                why=f"it is no argument and no output, so no sharding is known of it; {source_line(equation)}",
                hint=f"an array in its place: an argument of {name}, and its new value among the results",
            )
