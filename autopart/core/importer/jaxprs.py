"""Equations of what jax traced: all of them, and where they come from.

equations(jaxpr)          also of jaxprs inside it: bodies of loops, branches, functions that are called
closed_over(traced)       values of a trace around the function, which no argument brings in
source_line(equation)     train.py:12, the innermost line of the user's own
Dataflow(jaxpr)           how many equations are between an argument and the outputs that are made of it
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.extend.core import Literal, jaxprs_in_params

from autopart.base.user_line import is_of_package
from autopart.core.doors.jax_private import user_frames


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


class Use(NamedTuple):
    """Of an equation the positions of the results that anybody reads, and the values of those operands that are written
    in the program; None for the others."""

    read: list[int]
    known: list[Any]


class Uses:
    """The uses of equations of some primitives; those of one body, as a kernel's, count as one."""

    def __init__(self, jaxpr: Any, primitives: Collection[Any]):
        self._primitives, self._read, self._known = primitives, dict[Hashable, set[int]](), dict[Hashable, list[Any]]()
        self._seen = set[tuple[int, ...]]()
        if primitives:
            self._follow(jaxpr.jaxpr, jaxpr.consts, [None] * len(jaxpr.jaxpr.invars))

    def of(self, params: Mapping[str, Any], operands: int, results: int) -> Use:
        """Of equations with these parameters, so many operands and results."""
        found, known = self._read.get(_body(params)), self._known.get(_body(params))
        return Use([n for n in range(results) if found is None or n in found], known or [None] * operands)

    def _follow(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> None:
        if (key := (id(jaxpr), *map(id, constants), *map(id, inputs))) in self._seen:
            return
        self._seen.add(key)
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))
        read = {id(v) for equation in jaxpr.eqns for v in equation.invars} | set(map(id, jaxpr.outvars))
        for equation in jaxpr.eqns:
            given = [None if isinstance(v, Literal) else values.get(v) for v in equation.invars]
            if equation.primitive in self._primitives:
                body = _body(equation.params)
                self._read.setdefault(body, set()).update(n for n, v in enumerate(equation.outvars) if id(v) in read)
                before = self._known.get(body, given)
                self._known[body] = [x if x is y else None for x, y in zip(before, given, strict=True)]
                continue
            for inner in jaxprs_in_params(equation.params) if equation.params else ():
                plain, closed = getattr(inner, "jaxpr", inner), getattr(inner, "consts", [])
                name = equation.primitive.name
                passed = given[1:] if name == "cond" else given
                same = constants_and_carried(equation)[0] if name == "scan" else len(passed)  # what it does not change
                passed = [x if n < same else None for n, x in enumerate(passed)]
                count = len(plain.invars)
                unknown = [*closed, *[None] * (len(plain.constvars) - len(closed))]
                self._follow(plain, unknown, passed if len(passed) == count else [None] * count)


def _body(params: Mapping[str, Any]) -> Hashable:
    """What is equal for equations that call one body."""
    body = next((params[name] for name in ("jaxpr", "called", "call") if name in params), None)
    return str(params) if body is None else id(body)


def constants_and_carried(scan: Any) -> tuple[int, int]:
    """How many inputs of a scan are the same in each turn, and how many behind them go from turn to turn.

    Of the others a turn has a row. jax's names for these numbers change.
    """

    def alike(outside: Sequence[Any], inside: Sequence[Any]) -> int:
        return sum(a.aval.shape == b.aval.shape for a, b in zip(outside, inside, strict=True))

    body = getattr(scan.params["jaxpr"], "jaxpr", scan.params["jaxpr"])
    carried = alike(scan.outvars, body.outvars)
    return alike(scan.invars, body.invars) - carried, carried


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
