"""Equations of what jax traced: all of them, and where they come from.

equations(jaxpr)          also of jaxprs inside it: bodies of loops, branches, functions that are called
closed_over(traced)       values of a trace around the function, which no argument brings in
source_line(equation)     train.py:12, the innermost line of the user's own
Dataflow(jaxpr)           how many equations are between an argument and the outputs that are made of it
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import Literal, jaxprs_in_params

from autopart.base.user_line import is_of_package
from autopart.core.jax_private import user_frames


def equations(*jaxprs: Any) -> Iterator[Any]:
    """The equations, each once."""
    return (equation for inner in with_inner(*jaxprs) for equation in inner.eqns)


def with_inner(*jaxprs: Any) -> Iterator[Any]:
    """The jaxprs and those inside them, each once."""
    seen, waiting = set[int](), list(jaxprs)
    while waiting:
        inner = waiting.pop()
        inner = getattr(inner, "jaxpr", inner)
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        for equation in inner.eqns:
            if equation.params:
                waiting += jaxprs_in_params(equation.params)


class ReadResults:
    """Which results of equations anybody reads; equations of one body, as a kernel's, count as one."""

    def __init__(self, jaxpr: Any, primitives: Collection[Any]):
        self._read: dict[int, set[int]] = {}
        for inner in with_inner(jaxpr) if primitives else ():
            read = {id(v) for equation in inner.eqns for v in equation.invars} | set(map(id, inner.outvars))
            for equation in inner.eqns:
                if equation.primitive in primitives:
                    positions = (n for n, v in enumerate(equation.outvars) if id(v) in read)
                    self._read.setdefault(_body(equation.params), set()).update(positions)

    def of(self, params: Mapping[str, Any], count: int) -> list[int]:
        """Positions of the results that are read, of `count`."""
        found = self._read.get(_body(params))
        return [n for n in range(count) if found is None or n in found]


def _body(params: Mapping[str, Any]) -> int:
    return id(params.get("jaxpr") or params.get("called"))


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


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: the arguments that it is computed of, whether it is one as it came, and how.

    cheaply  by operations on elements, or moving them, alone: no product, loop, or kernel
    """

    arguments: frozenset[int] = frozenset()
    is_argument: bool = False
    cheaply: bool = True


def origins(jaxpr: Any, given: Sequence[Origin] | None = None) -> list[Origin]:
    """The origin of each output, for given ones of the arguments; calls inside are looked into."""
    arguments = given or [Origin(frozenset({n}), True) for n in range(len(jaxpr.invars))]
    known = {id(variable): origin for variable, origin in zip(jaxpr.invars, arguments, strict=True)}

    def of(variable: Any) -> Origin:
        return Origin() if isinstance(variable, Literal) else known.get(id(variable), Origin())

    for equation in jaxpr.eqns:
        read = [of(v) for v in equation.invars]
        called = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        joined = frozenset().union(*(origin.arguments for origin in read))
        all_cheap = _is_cheap(equation) and all(origin.cheaply for origin in read)
        computed = [Origin(joined, cheaply=all_cheap)] * len(equation.outvars)
        made = computed if called is None else origins(called.jaxpr, read)
        known.update((id(v), origin) for v, origin in zip(equation.outvars, made, strict=True))
    return [of(v) for v in jaxpr.outvars]


def _is_cheap(equation: Any) -> bool:
    name = equation.primitive.name
    own = getattr(jax.lax, f"{name}_p", None) is equation.primitive
    return own and not list(jaxprs_in_params(equation.params)) and name not in ("dot_general", "conv_general_dilated")


class Dataflow:
    """Which outputs are made of an argument, and how directly: `p + update` is one equation from p."""

    def __init__(self, jaxpr: Any):
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        while len(inner.eqns) == 1 and _calls_all(inner, inner.eqns[0]):
            inner = getattr(inner.eqns[0].params["jaxpr"], "jaxpr", inner.eqns[0].params["jaxpr"])
        self._arguments, self._outputs = inner.invars, dict[int, list[int]]()
        for position, variable in enumerate(inner.outvars):
            self._outputs.setdefault(id(variable), []).append(position)
        arguments = set(map(id, inner.invars))
        self.unchanged = frozenset(n for n, variable in enumerate(inner.outvars) if id(variable) in arguments)
        """Positions of the outputs that are arguments as they came."""
        self._readers: dict[int, list[Any]] = {}
        for equation in inner.eqns:
            for variable in equation.invars:
                self._readers.setdefault(id(variable), []).append(equation)

    def outputs_near(self, argument: int, hops: int) -> Mapping[int, int]:
        """Positions of the outputs behind at most `hops` equations, by how many there are at least."""
        found: dict[int, int] = {}
        seen = reached = {id(self._arguments[argument])}
        for distance in range(hops + 1):
            for variable in reached:
                for position in self._outputs.get(variable, ()):
                    found.setdefault(position, distance)
            behind = (id(v) for r in reached for equation in self._readers.get(r, ()) for v in equation.outvars)
            reached = {variable for variable in behind if variable not in seen}
            seen = seen | reached
        return found


def _calls_all(outer: Any, equation: Any) -> bool:
    """True for a call that takes all arguments as they are, and leaves all outputs."""
    inner = equation.params.get("jaxpr")
    return inner is not None and equation.invars == outer.invars and equation.outvars == outer.outvars
