"""From when to when each value of a scope is there, and where most of it is.

    op          0 x    1 h = dot    2 r = relu    3 loss    4 dr = f(r)    5 dh = g(h, dr)
    h                  |-----------------------------------------------|
    r                               |------------------------|
    bytes       .      h            h + r         h + r      h + r         h         most after op 3: the cut

A value that is defined up to the cut and read behind it is a *residual*: read early, then late, and there in between.
Loops and branches inside the scope are single steps of it. A view is the memory of what it shows; what is computed
anew for each use takes none, nor do arguments, which are there anyway.

A scope may have several cuts, such as one for each of several training steps in a row: where a stretch on one side of a
cut has, of its own values, at least half as much at its own peak, it is cut there too. The highest peaks come first.

The lifetimes of a scope cost what it is long, and each cut costs the stretch that it cuts.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autopart.core.control_flow import statements
from autopart.core.passes.recompute.across_scopes import WholeProgram
from autopart.core.program import ROOT, Program

HALF = 0.5
"""A stretch with a peak of its own of at least this share of the scope's peak is cut again."""

MOST_CUTS = 64
"""Cuts of a scope: training steps in a row that one program spells out. Layers without gradients have a peak each."""


@dataclass(frozen=True)
class Lifetimes:
    """The values of one scope.

    start, end  its ops, the program's arguments left out
    steps[i]    the op of the scope in which op `start + i` stands: itself, or the loop or case around it
    values      those that the scope's own ops define, without arguments and what is only there inside a loop
    first[i]    the step at which `values[i]` is made
    last[i]     the last step that reads it, or a view of it; the end of the scope where it leaves the scope
    size[i]     its bytes
    """

    whole: WholeProgram
    scope: int
    start: int
    end: int
    steps: np.ndarray
    values: np.ndarray
    first: np.ndarray
    last: np.ndarray
    size: np.ndarray

    @property
    def program(self) -> Program:
        """The program that the scope is one of."""
        return self.whole.program

    @cached_property
    def number(self) -> dict[int, int]:
        """Value -> its place in `values`."""
        return {v: i for i, v in enumerate(self.values.tolist())}

    def numbers_of(self, values: np.ndarray) -> np.ndarray:
        """int64: the place in `values` of each, -1 for one that is not there."""
        if not len(self.values):
            return np.full(len(values), -1)
        place = np.minimum(np.searchsorted(self.values, values), len(self.values) - 1)
        return np.where(self.values[place] == values, place, -1)

    def step_of(self, op: int) -> int:
        """The step in which an op stands; -1 outside the scope."""
        return int(self.steps[op - self.start]) if self.start <= op < self.end else -1

    @cached_property
    def uses(self) -> range:
        """The entries of `operands` by which the scope's ops read, those inside its loops and branches included."""
        return range(int(self.program.operand_ptr[self.start]), int(self.program.operand_ptr[self.end]))

    @cached_property
    def read(self) -> np.ndarray:
        """int32[uses]: the value that each of `uses` reads."""
        return self.program.operands[self.uses.start : self.uses.stop]

    @cached_property
    def reader(self) -> np.ndarray:
        """int64[uses]: the step that reads by each of `uses`."""
        return self.steps[self.program.use_op[self.uses.start : self.uses.stop] - self.start]

    def cuts(self) -> list[int]:
        """The ops behind which the scope is cut, in order; empty where nothing is ever there."""
        stretches: list[tuple[float, int, int, int, np.ndarray]] = []
        self._enter(stretches, self.start, self.end, np.arange(len(self.values)))
        found, floor = list[int](), 0.0
        while stretches and len(found) < MOST_CUTS:
            peak, cut, start, end, among = heapq.heappop(stretches)
            if -peak <= floor:
                break
            found.append(cut)
            floor = floor or -HALF * peak
            self._enter(stretches, start, cut, among)
            self._enter(stretches, cut + 1, end, among)
        return sorted(found)

    def _enter(
        self, stretches: list[tuple[float, int, int, int, np.ndarray]], start: int, end: int, among: np.ndarray
    ) -> None:
        """Puts a stretch of ops among those that may be cut: (-its peak, where that is, start, end, its own values)."""
        among = among[(self.first[among] >= start) & (self.last[among] <= end)]
        if len(among) and start < end:
            change = np.zeros(end - start + 1)
            np.add.at(change, self.first[among] - start, self.size[among])
            np.add.at(change, self.last[among] - start, -self.size[among])
            bytes_there = np.cumsum(change)[:-1]
            at = int(bytes_there.argmax())
            heapq.heappush(stretches, (-float(bytes_there[at]), start + at, start, end, among))

    def last_reads(self, among: np.ndarray) -> np.ndarray:
        """int64: of each of the values, the last step that reads it, or a view of it, by the `uses` that are True."""
        of_value = _ByValue(self.whole, self.start, self.end)
        of_value.raise_to(self.read[among], self.reader[among])
        of_value.through_views()
        return np.maximum(of_value.at(self.values), self.first)


def lifetimes(whole: WholeProgram, scope: int) -> Lifetimes:
    """The lifetimes of the values of a scope of its own: the program's, or a body's."""
    program = whole.program
    start, end = len(program.arguments) if scope == ROOT else program.scopes[scope].start, program.scopes[scope].end
    steps = np.full(end - start, -1, np.int64)
    for statement in statements(program, start, end):
        if isinstance(statement, int):
            steps[statement - start] = statement
        else:
            steps[statement.op - start : statement.end - start] = statement.op
    first, last = np.searchsorted(whole.barriers[:, 0], (start, end))
    for begin, stop in (whole.barriers[first:last] - start).tolist():
        steps[begin:stop] = np.minimum(steps[begin:stop], start + begin)
    of_value, (low, high) = _ByValue(whole, start, end), program.result_ptr[[start, end]].tolist()
    makers = program.value_op[low:high]
    values = low + np.flatnonzero((program.op_scope[makers] == scope) & ~whole.inside_loops[low:high])
    uses = slice(int(program.operand_ptr[start]), int(program.operand_ptr[end]))
    reader = steps[program.use_op[uses] - start]
    of_value.raise_to(program.operands[uses], np.where(program.use_position[uses] >= end, end, reader))
    leaving = program.outputs
    if scope != ROOT:
        leaving = program.operands[list(whole.loop(program.scopes[scope].op).body.returns)]
    of_value.raise_to(np.array(leaving, np.int64), np.full(len(leaving), end))
    of_value.through_views()
    made = steps[program.value_op[values] - start]
    last = np.maximum(of_value.at(values), made)
    return Lifetimes(whole, scope, start, end, steps, values, made, last, whole.size[values])


class _ByValue:
    """The last step that reads each value that some ops define, -1 where none does."""

    def __init__(self, whole: WholeProgram, start: int, end: int):
        self._whole = whole
        self._views = whole.views[slice(*np.searchsorted(whole.views, (start, end)))]
        self._low, high = whole.program.result_ptr[[start, end]].tolist()
        self._last = np.full(high - self._low, -1, np.int64)

    def raise_to(self, values: np.ndarray, steps: np.ndarray) -> None:
        """Some values are read at some steps."""
        there = (values >= self._low) & (values < self._low + len(self._last))
        np.maximum.at(self._last, values[there] - self._low, steps[there])

    def through_views(self) -> None:
        """What reads a view reads what it shows."""
        program, last = self._whole.program, self._last.tolist()
        shown = program.operands[program.operand_ptr[self._views]] - self._low
        made = program.result_ptr[self._views] - self._low
        for read, view in zip(shown[::-1].tolist(), made[::-1].tolist(), strict=True):
            if read >= 0:
                last[read] = max(last[read], last[view])
        self._last = np.array(last, np.int64)

    def at(self, values: np.ndarray) -> np.ndarray:
        """int64: the last step of each of these values."""
        return self._last[values - self._low]
