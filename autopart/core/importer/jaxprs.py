"""Equations of what jax traced: all of them, and where they come from.

equations(jaxpr)          also of jaxprs inside it: bodies of loops, branches, functions that are called
closed_over(traced)       values of a trace around the function, which no argument brings in
source_line(equation)     train.py:12, the innermost line of the user's own
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.core import Tracer
from jax.extend.core import jaxprs_in_params

from autopart.core.jax_private import user_frames
from autopart.core.user_line import is_of_package


def equations(*jaxprs: Any) -> Iterator[Any]:
    """The equations, each once."""
    seen, waiting = set[int](), list(jaxprs)
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


def closed_over(traced: Any) -> Iterator[tuple[Any, Any]]:
    """(variable, value) of the traced values that a `jax.stages.Traced` takes in front of its arguments."""
    consts = traced._consts
    pairs = zip(traced.jaxpr.jaxpr.invars[: len(consts)], consts, strict=True)
    return ((variable, value) for variable, value in pairs if isinstance(value, Tracer))


def source_line(equation: Any) -> str:
    """File and line of an equation; where all of it is in packages, of the first one inside it that is not."""
    for one in (equation, *equations(*jaxprs_in_params(equation.params))):
        for frame in user_frames(one.source_info.traceback):
            if not is_of_package(frame.file_name):
                return f"{frame.file_name}:{frame.start_line}"
    return ""
