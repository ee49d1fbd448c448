"""Every equation of a jaxpr, also of those inside it: bodies of loops, branches, functions that are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.extend.core import jaxprs_in_params


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations, each once."""
    seen, waiting = set[int](), [jaxpr]
    while waiting:
        inner = waiting.pop()
        inner = getattr(inner, "jaxpr", inner)
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        for equation in inner.eqns:
            yield equation
            if equation.params:
                waiting += jaxprs_in_params(equation.params)
