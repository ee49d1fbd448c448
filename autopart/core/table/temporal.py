"""PartIR:Temporal: every loop nest of PartIR:Core run in sequence, on one device. What a partitioning means.

    %y = loop "B" [#sum]                 y = 0
           slice 1 %x, slice 0 %w        for b in range(4):
           dot                               y += dot(x[:, tile b], w[tile b, :])

    tile<d>    what the iterations leave is concatenated on dim d
    sum, ...   it is added, or reduced otherwise
    any        every iteration leaves the same

Only the table is read: which mapping each op's loop over each axis uses, and in which order the loops stand. Layouts,
placement, redistribution and export have no part in it, so it is what they are tested against. Ops that hand a value on
(arguments, carries, joins, tags, barriers) and explicit tiles of a value would take an array apart and put it together
again: here it is just handed on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autopart.core.control_flow import Branches, Loop, Region, statements
from autopart.core.op import AND, ANY, MAX, MIN, MUL, OR, SUM, WHOLE
from autopart.core.program import ROOT
from autopart.core.stretch import Stretch
from autopart.core.table.partitioning import Partitioning

Nest = tuple[tuple[int, int], ...]
"""(axis, mapping) of an op's loops, outermost first."""

RunTile = Callable[[int, Nest, Sequence[np.ndarray], Sequence[int]], list[np.ndarray]]
"""Runs op number `op` on its operands' slices, at a place in its nest (one number per loop)."""

_REDUCTIONS: dict[int, Any] = {
    SUM: np.add,
    MAX: np.maximum,
    MIN: np.minimum,
    MUL: np.multiply,
    AND: np.bitwise_and,
    OR: np.bitwise_or,
}

_HANDS_ON = frozenset({"tag", "optimization_barrier"})
"""Kinds whose result is their operand, besides arguments, carries and joins."""


def interpret(partitioning: Partitioning, arguments: Sequence[np.ndarray], run_tile: RunTile) -> list[np.ndarray]:
    """The program's outputs for whole arguments, with each op's loop nest run in sequence by `run_tile`."""
    return _Interpreter(partitioning, run_tile).program(arguments)


def loop_nest(partitioning: Partitioning, op: int) -> Nest:
    """The loops of an op: the axis that entered the nest first is the outermost."""
    state = partitioning.state
    axes = [axis for axis in range(len(partitioning.sizes)) if state.mapping[op, axis] >= 0]
    axes.sort(key=lambda axis: (state.op_stamp[op, axis], axis))
    return tuple((axis, int(state.mapping[op, axis])) for axis in axes)


class _Interpreter:
    def __init__(self, partitioning: Partitioning, run_tile: RunTile):
        self._partitioning, self._program, self._run_tile = partitioning, partitioning.program, run_tile
        self._values: dict[int, np.ndarray] = {}

    def program(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        program = self._program
        self._values.update(zip(program.arguments, arguments, strict=True))
        self._range(len(program.arguments), program.scopes[ROOT].end)
        return [self._values[value] for value in program.outputs]

    def _range(self, start: int, end: int) -> None:
        for statement in statements(self._program, start, end):
            match statement:
                case Loop():
                    self._loop(statement)
                case Branches():
                    self._branches(statement)
                case op:
                    self._op(op, self._program.spec(op).kind)

    def _op(self, op: int, kind: str) -> None:
        if kind == "condition":
            return
        operands = [self._values[value] for value in self._program.operands_of(op).tolist()]
        results = operands if kind in _HANDS_ON else self._nest(op, loop_nest(self._partitioning, op), operands)
        self._values.update(zip(self._program.results_of(op), results, strict=True))

    # ---- loop nests

    def _nest(self, op: int, nest: Nest, operands: list[np.ndarray]) -> list[np.ndarray]:
        """Runs the loops of `nest` one inside the other, and the op in the innermost."""
        table, sizes = self._partitioning.table, self._partitioning.sizes
        mappings = table.of[self._program.op_spec[op]]

        def loop(depth: int, operands: list[np.ndarray], place: tuple[int, ...]) -> list[np.ndarray]:
            if depth == len(nest):
                return self._run_tile(op, nest, operands, place)
            axis, number = nest[depth]
            mapping, left = mappings[number], []
            outside, ways = self._at(number, nest, place), int(sizes[axis])
            for i in range(ways):
                slices = [
                    read(x, mapping.operands[k], mapping.stretch(k), i, ways, outside) for k, x in enumerate(operands)
                ]
                left.append(loop(depth + 1, slices, (*place, i)))
            return [combined(list(parts), a) for parts, a in zip(zip(*left, strict=True), mapping.results, strict=True)]

        return loop(0, operands, ())

    def _at(self, mapping: int, nest: Nest, place: Sequence[int]) -> tuple[int, int]:
        """(iteration, of how many) of the loops so far that use a mapping, taken together."""
        at, ways = 0, 1
        for (axis, number), i in zip(nest, place, strict=False):
            if number == mapping:
                size = int(self._partitioning.sizes[axis])
                at, ways = at * size + i, ways * size
        return at, ways

    # ---- control flow

    def _loop(self, loop: Loop) -> None:
        values = self._values
        for carry in loop.carries:
            values[carry.inside] = self._read(carry.initial)
        while self._region(loop.condition)[0].item():
            following = self._region(loop.body)
            values.update(zip((carry.inside for carry in loop.carries), following, strict=True))
        for carry in loop.carries:
            values[carry.after] = values[carry.inside]

    def _branches(self, case: Branches) -> None:
        """An i1 chooses the first of two branches where it holds; a number out of range chooses the last."""
        which = self._read(case.predicate).item()
        last = len(case.branches) - 1
        if isinstance(which, bool):
            which = 0 if which else last
        chosen = self._region(case.branches[which if 0 <= which <= last else last])
        for join, array in zip(case.joins, chosen, strict=True):
            self._values[self._program.results_of(join)[0]] = array

    def _region(self, region: Region) -> list[np.ndarray]:
        self._range(region.scope.start, region.scope.end)
        return [self._read(use) for use in region.returns]

    def _read(self, use: int) -> np.ndarray:
        return self._values[int(self._program.operands[use])]


def read(
    array: np.ndarray, dim: int, stretch: Stretch | None, place: int, ways: int, outside: tuple[int, int]
) -> np.ndarray:
    """What iteration `place` of `ways` reads of an array: its tile, or a stretch with zeros outside the dim.

    The array is what those loops around it read that use the same mapping; `outside` is (iteration, of how many).
    """
    if stretch is None:
        return tile(array, dim, place, ways)
    at, cut = outside
    if stretch.order or stretch.wraps:
        order = stretch.order or (np.arange(array.shape[dim]) - stretch.low) % array.shape[dim]
        return tile(array if cut > 1 else array.take(order, dim), dim, place, ways)
    first = stretch.first(cut * ways, at * ways + place) - (stretch.first(cut, at) if cut > 1 else 0)
    if stretch.times > 1:
        parts = np.split(array, stretch.times, dim)
        places = np.arange(first, first + stretch.piece(cut * ways))
        return np.concatenate([part.take(places, dim) for part in parts], dim)
    end, size = first + stretch.length(cut * ways), array.shape[dim]
    inside = array[(slice(None),) * dim + (slice(min(max(first, 0), size), min(max(end, 0), size)),)]
    before = min(max(-first, 0), end - first)
    edges = [(0, 0)] * array.ndim
    edges[dim] = (before, end - first - before - inside.shape[dim])
    return np.pad(inside, edges)


def tile(array: np.ndarray, dim: int, index: int, ways: int) -> np.ndarray:
    """Slice number `index` of `ways` equal ones along `dim`; the array itself for `WHOLE`."""
    if dim == WHOLE:
        return array
    size = array.shape[dim] // ways
    return array[(slice(None),) * dim + (slice(index * size, (index + 1) * size),)]


def combined(parts: Sequence[np.ndarray], action: int) -> np.ndarray:
    """What a loop leaves of what its iterations left, by its action on the result."""
    if action == ANY:
        return parts[0]
    if action in _REDUCTIONS:
        with np.errstate(all="ignore"):
            return functools.reduce(_REDUCTIONS[action], parts).astype(parts[0].dtype, copy=False)
    return np.concatenate(parts, axis=action)
