"""The program's arrays while ops are appended, and calls that are replayed once: a later one is a copy of the ops.

    call @f(%3, 0.5)     ops 10 to 14:  %7 = multiply %3 ...   %8 = tanh %7
    call @f(%9, 0.5)     ops 31 to 35:  %28 = multiply %9 ...  %29 = tanh %28      21 added, and %9 for %3

Ops of a call are a function of the callee and of what is known of the arguments: which of them are computed anew for
each use, of which specs, and which are equal. So a function of 500 ops that is called 9,000 times is walked through
once for each such pattern.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from autopart.core.importer.trip_count import Lazy, Value
from autopart.core.program import Scope

LEAST = 24
"""Ops of a call that are worth copying: fewer are as soon walked through."""


class GrownOps:
    """Arrays of `Program`, of int32, to which ops are appended.

    types       a number for the type of each value
    op_source   a number for the MLIR op that an op was made from
    call_site   the same of the outermost call that it was inlined for
    tags, owners, barriers   as in `Program`, in the order in which they were found
    fixed       so many values come first that any call may read, whatever its arguments: constants made arguments
    """

    def __init__(self) -> None:
        self.op_spec, self.op_scope, self.op_source, self.call_site = (array("i") for _ in range(4))
        self.operands, self.types = array("i"), array("i")
        self.operand_ptr, self.result_ptr = array("i", [0]), array("i", [0])
        self.scopes = [Scope("program", -1, -1, 0, 0)]
        self.tags: list[tuple[str, int]] = []
        self.owners: list[tuple[int, int]] = []
        self.barriers: list[range] = []
        self.fixed = 0

    def __len__(self) -> int:
        return len(self.op_spec)

    def place(self) -> Place:
        """How much of everything there is."""
        lists = self.op_spec, self.operands, self.types, self.scopes, self.tags, self.owners, self.barriers
        return Place(*map(len, lists))


class Place(NamedTuple):
    """Lengths of the arrays and lists of `GrownOps`."""

    op: int
    operand: int
    value: int
    scope: int
    tag: int
    owner: int
    barrier: int


class Call(NamedTuple):
    """A call's pattern, equal for calls whose ops are alike, and what stands for the numbers in it: values that are
    read, and sources of what is computed anew."""

    pattern: tuple[object, ...]
    inputs: list[int]
    sources: list[int]

    @staticmethod
    def of(callee: Hashable, arguments: Sequence[Value], fixed: int = 0) -> Call:
        """That of a callee, however it is read, with some arguments; the first values are `fixed`, and stay."""
        inputs, sources = dict[int, int](), dict[int, int]()

        def shown(value: Value) -> object:
            if not isinstance(value, Lazy):
                if value < fixed:
                    return (value,)
                return inputs.setdefault(value, len(inputs))
            source = sources.setdefault(value.source, len(sources))
            return (value.spec, source, *[shown(operand) for operand in value.operands])

        pattern = (callee, *[shown(argument) for argument in arguments])
        return Call(pattern, list(inputs), list(sources))


class Replayed(NamedTuple):
    """A call that was walked through: from where to where it has appended ops in a scope, and what it returned."""

    call: Call
    begin: Place
    end: Place
    scope: int
    results: list[Value]


class Copied:
    """The ops of a call with numbers that count from its first op, operand, value and scope; ~i stands for input or
    source number i of the call."""

    def __init__(self, ops: GrownOps, replayed: Replayed):
        (_, inputs, sources), begin, end = replayed.call, replayed.begin, replayed.end
        self._begin, self._scope = begin, replayed.scope
        self._inputs = {value: ~number for number, value in enumerate(inputs)}
        self._sources = {source: ~number for number, source in enumerate(sources)}
        self.op_count = end.op - begin.op
        self._op_spec = _part(ops.op_spec, begin.op, end.op)
        self._op_scope, self._outside = _relative(_part(ops.op_scope, begin.op, end.op), begin.scope)
        self._op_source = _numbered(_part(ops.op_source, begin.op, end.op), self._sources)
        self._operands = _relative_to(
            _part(ops.operands, begin.operand, end.operand),
            begin.value,
            {**self._inputs, **{value: ~(len(inputs) + value) for value in range(ops.fixed)}},
        )
        self._operand_ptr = _part(ops.operand_ptr, begin.op + 1, end.op + 1) - begin.operand
        self._result_ptr = _part(ops.result_ptr, begin.op + 1, end.op + 1) - begin.value
        self._types = _part(ops.types, begin.value, end.value)
        self._scopes = ops.scopes[begin.scope : end.scope]
        self._tags = ops.tags[begin.tag : end.tag]
        self._owners = ops.owners[begin.owner : end.owner]
        self._barriers = ops.barriers[begin.barrier : end.barrier]
        self._results = replayed.results

    def append(self, ops: GrownOps, call: Call, scope: int, site: int) -> list[Value]:
        """Appends the ops of an alike call; what that returns."""
        at = ops.place()
        moved, inputs, sources = at.op - self._begin.op, call.inputs, call.sources
        values = at.value - self._begin.value

        def now(value: Value) -> Value:
            if isinstance(value, Lazy):
                source = self._sources.get(value.source)
                operands = [now(operand) for operand in value.operands]
                return Lazy(value.spec, operands, value.source if source is None else sources[~source])
            if value < ops.fixed:
                return value
            return value + values if value >= self._begin.value else inputs[~self._inputs[value]]

        _extend(ops.op_spec, self._op_spec)
        _extend(ops.op_scope, np.where(self._outside, scope, self._op_scope + at.scope))
        _extend(ops.op_source, _filled_in(self._op_source, 0, sources))
        _extend(ops.call_site, np.full(self.op_count, site))
        _extend(ops.operands, _filled_in(self._operands, at.value, [*inputs, *range(ops.fixed)]))
        _extend(ops.operand_ptr, self._operand_ptr + at.operand)
        _extend(ops.result_ptr, self._result_ptr + at.value)
        _extend(ops.types, self._types)
        for s in self._scopes:
            parent = scope if s.parent < self._begin.scope else s.parent + at.scope - self._begin.scope
            ops.scopes.append(
                Scope(s.kind, s.op + moved, parent, s.start + moved, s.end + moved, s.trips, s.trips_known)
            )
        ops.tags += [(name, value + values) for name, value in self._tags]
        ops.owners += [(part + moved, owner + moved) for part, owner in self._owners]
        ops.barriers += [range(parts.start + moved, parts.stop + moved) for parts in self._barriers]
        return [now(value) for value in self._results]


def _part(numbers: array[int], begin: int, end: int) -> np.ndarray:
    """int32 of a part of an array, which may grow again after that."""
    return np.array(numbers[begin:end], np.int32)


def _extend(numbers: array[int], by: np.ndarray) -> None:
    numbers.frombytes(by.astype(np.int32, copy=False).tobytes())


def _relative(scopes: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Scopes that count from the first, and where it is the one around the call."""
    return scopes - first, scopes < first


def _relative_to(values: np.ndarray, first: int, inputs: dict[int, int]) -> np.ndarray:
    """Values that count from the first, and what stands for those from outside."""
    outside = np.flatnonzero(values < first)
    relative = values - first
    relative[outside] = [inputs[value] for value in values[outside].tolist()]
    return relative


def _numbered(sources: np.ndarray, known: dict[int, int]) -> np.ndarray:
    """Sources, and what stands for those of the caller."""
    found = sources.copy()
    for source, stands in known.items():
        found[sources == source] = stands
    return found


def _filled_in(numbers: np.ndarray, first: int, given: Sequence[int]) -> np.ndarray:
    """Numbers counted from `first`, and what was given for others."""
    moved = numbers + np.int32(first)
    others = np.flatnonzero(numbers < 0)
    moved[others] = np.array(given, np.int32)[~numbers[others]]
    return moved
