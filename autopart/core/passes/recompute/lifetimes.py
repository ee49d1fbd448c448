"""From when to when each value of a scope is there, and where most of it is.

    op          0 x    1 h = dot    2 r = relu    3 loss    4 dr = f(r)    5 dh = g(h, dr)
    h                  |-----------------------------------------------|
    r                               |------------------------|
    bytes       .      h            h + r         h + r      h + r         h         most after op 3: the cut

A value that is defined up to the cut and read behind it is a *residual*: read early, then late, and there in between.
Loops and branches inside the scope are single steps of it. A view is the memory of what it shows; what is computed
anew for each use takes none, nor do arguments, which are there anyway.

A scope may have several cuts, such as one for each of several training steps in a row: where a stretch on one side of a
cut has, of its own values, at least half as much at its own peak, it is cut there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autopart.core.control_flow import statements
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Structural, View
from autopart.core.program import ROOT, Program

HALF = 0.5
"""A stretch with a peak of its own of at least this share of the scope's peak is cut again."""


@dataclass(frozen=True)
class Lifetimes:
    """The values of one scope.

    step[o]    the op of the scope in which op o stands: itself, or the loop or case around it; -1 outside the scope
    values     those that the scope's own ops define, without arguments and what is only there inside a loop
    first[i]   the step at which `values[i]` is made
    last[i]    the last step that reads it, or a view of it; the end of the scope where it leaves the scope
    size[i]    its bytes
    """

    program: Program
    scope: int
    step: np.ndarray
    values: np.ndarray
    first: np.ndarray
    last: np.ndarray
    size: np.ndarray

    @cached_property
    def number(self) -> dict[int, int]:
        """Value -> its place in `values`."""
        return {v: i for i, v in enumerate(self.values.tolist())}

    def profile(self, among: np.ndarray) -> np.ndarray:
        """float64[ops + 1]: bytes of the values `among` that are there after each op."""
        change = np.zeros(self.program.op_count + 2)
        np.add.at(change, self.first[among], self.size[among])
        np.add.at(change, self.last[among], -self.size[among])
        return np.cumsum(change)

    def cuts(self) -> list[int]:
        """The ops behind which the scope is cut, in order; empty where nothing is ever there."""
        scope = self.program.scopes[self.scope]
        return sorted(self._cuts(scope.start, scope.end, np.arange(len(self.values)), 0.0))

    def _cuts(self, start: int, end: int, among: np.ndarray, floor: float) -> Iterator[int]:
        among = among[(self.first[among] >= start) & (self.last[among] <= end)]
        if not len(among):
            return
        profile = self.profile(among)
        cut = start + int(profile[start:end].argmax())
        if profile[cut] <= floor:
            return
        yield cut
        floor = floor or HALF * profile[cut]
        yield from self._cuts(start, cut, among, floor)
        yield from self._cuts(cut + 1, end, among, floor)

    def residuals(self, cut: int) -> list[int]:
        """The values that are made up to a cut and read behind it, in order."""
        return self.values[(self.first <= cut) & (self.last > cut)].tolist()


def lifetimes(program: Program, scope: int) -> Lifetimes:
    """The lifetimes of a scope's own values."""
    around = program.scopes[scope]
    step = np.full(program.op_count + 1, -1, np.int64)
    start = len(program.arguments) if scope == ROOT else around.start
    for statement in statements(program, start, around.end):
        if isinstance(statement, int):
            step[statement] = statement
        else:
            step[statement.op : statement.end] = statement.op
    for parts in program.barriers:
        step[parts.start : parts.stop] = np.minimum(step[parts.start : parts.stop], parts.start)
    own = (program.op_scope[program.value_op] == scope) & (step[program.value_op] >= 0)
    for carry in program.owners:
        if program.spec(carry).kind == "carry":
            own[program.result_ptr[carry]] = False
    last = _last_reads(program, scope, step, around.end)
    values = np.flatnonzero(own)
    first = step[program.value_op[values]]
    return Lifetimes(program, scope, step, values, first, np.maximum(last[values], first), _sizes(program)[values])


def _last_reads(program: Program, scope: int, step: np.ndarray, end: int) -> np.ndarray:
    """int64[values]: the last step that reads each, -1 if none does."""
    last = np.full(program.value_count, -1, np.int64)
    reader = step[program.use_op]
    reader = np.where((reader < 0) | (program.use_position >= end), end, reader)
    np.maximum.at(last, program.operands, reader)
    if scope == ROOT:
        last[program.outputs] = end
    read_through_views(program, last)
    return last


def read_through_views(program: Program, last: np.ndarray) -> None:
    """What reads a view reads what it shows: raises `last`, by value, accordingly."""
    for op in _views(program)[::-1].tolist():
        shown, view = program.operands_of(op)[0], program.results_of(op)[0]
        last[shown] = max(last[shown], last[view])


def shown_by_views(program: Program) -> np.ndarray:
    """int64[values]: the value whose memory each is, itself where it is no view."""
    shown = np.arange(program.value_count)
    for op in _views(program).tolist():
        shown[program.results_of(op)[0]] = shown[program.operands_of(op)[0]]
    return shown


def _views(program: Program) -> np.ndarray:
    """The ops that show their one operand under another name, in order."""
    views = np.array([isinstance(traits_of(s), View) and len(s.operands) == 1 for s in program.specs], np.bool_)
    return np.flatnonzero(views[program.op_spec])


def _sizes(program: Program) -> np.ndarray:
    """float64[values]: bytes of each, without those that are no memory of their own."""
    sizes = [0.0 if _no_memory(spec) else result.bytes for spec in program.specs for result in spec.results]
    return np.array(sizes, np.float64)[program.value_type_row]


def _no_memory(spec: OpSpec) -> bool:
    traits = traits_of(spec)
    if isinstance(traits, Structural):
        return spec.kind not in ("carry", "join")
    return isinstance(traits, View | Constant) or (traits.cloned_per_use and not any(t.shape for t in spec.operands))
