"""Which action a tiling comes from, and along which ops it came.

    params/up tile<1, model>                       action 2, by tactic "MP"
      -> dot_general  (_, 1) -> tile 1             the op loops over "model", since its operand is tiled so
      -> add          (1, _) -> tile 1             and so on: its result is wanted so
      -> params/up_bias [{"model"}]                the value that was asked about

A partitioning's trail has every entry of its table in the order in which it was set. Replaying a schedule's actions on
a fresh one therefore gives each entry the action that set it; and of the neighbours that an op agrees with, those that
were set before it are the evidence on which propagation took its mapping. Following the earliest evidence ends at an
action on a value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.mesh import Mesh
from autopart.core.op import WHOLE, TileMapping
from autopart.core.program import Program
from autopart.core.table.actions import Action
from autopart.core.table.loop_nests import ATOMIC
from autopart.core.table.partitioning import Partitioning


@dataclass(frozen=True)
class Cause:
    """Where a tiling, or a decision to keep a value whole, comes from.

    action    number of the action, among all of the schedule, that decided about a value
    value     that value
    ops       the ops that took a mapping one after the other, from there to the value asked about; none if it is that
    spread    number of the action, a propagation as a rule, after which the value asked about was tiled
    """

    action: int
    value: int
    ops: tuple[int, ...]
    spread: int


class DecisionHistory:
    """A schedule's actions once more, on a partitioning of its own; asked by value and axis."""

    def __init__(self, program: Program, mesh: Mesh, actions: Sequence[Action]):
        self._program, self._partitioning = program, Partitioning(program, mesh)
        self._ends: list[int] = []
        state = self._partitioning.state
        for action in actions:
            self._partitioning.apply(action)
            self._ends.append(int(state.length[0]))
        count = int(state.length[0])
        where, axis = state.trail[:count, 0], state.trail[:count, 1]
        self._op_place = np.full(state.mapping.shape, -1, np.int64)
        self._value_place = np.full(state.action.shape, -1, np.int64)
        places = np.arange(count)
        of_op = where >= 0
        self._op_place[where[of_op], axis[of_op]] = places[of_op]
        self._value_place[-1 - where[~of_op], axis[~of_op]] = places[~of_op]

    def tiled_by(self, value: int, axis: str) -> Cause | None:
        """The cause of the tile of `value` along `axis`.

        None where the actions do not tile it: a tactic of somebody's own did more than it said.
        """
        index = self._partitioning.mesh.index(axis)
        if self._partitioning.tiled_dim(value, axis) < 0:
            return None
        if self._partitioning.state.action[value, index] > 0:
            at = self._value_place[value, index]
            return Cause(self._action_at(at), value, (), self._action_at(at))
        op = int(self._program.value_op[value])
        ops, spread = [op], self._action_at(self._op_place[op, index])
        while True:
            place, value, next_op = min(self._evidence(ops[-1], index), default=(-1, -1, -1))
            if next_op < 0:
                action = self._action_at(place) if place >= 0 else spread
                return Cause(action, value, tuple(reversed(ops)), spread)
            ops.append(next_op)

    def kept_by(self, value: int, axis: str) -> int | None:
        """The number of the action that keeps `value` whole along `axis`; None if there is none."""
        index = self._partitioning.mesh.index(axis)
        if self._partitioning.state.action[value, index] != ATOMIC:
            return None
        return self._action_at(self._value_place[value, index])

    def mapping(self, op: int, axis: str) -> TileMapping | None:
        """The mapping of the op's loop over `axis`."""
        number = int(self._partitioning.state.mapping[op, self._partitioning.mesh.index(axis)])
        return self._partitioning.table.of[self._program.op_spec[op]][number] if number >= 0 else None

    def _evidence(self, op: int, axis: int) -> Iterator[tuple[int, int, int]]:
        """(place on the trail, value, op or -1 where the value itself was decided about) of all that was there."""
        program, state = self._program, self._partitioning.state
        mapping, before = self._mapping(op, axis), self._op_place[op, axis]
        found: list[tuple[int, int, int]] = []
        for value, dim in zip(program.operands_of(op).tolist(), mapping.operands, strict=True):
            if dim == WHOLE:
                continue
            maker = int(program.value_op[value])
            if state.action[value, axis] == dim + 1:
                found.append((int(self._value_place[value, axis]), value, -1))
            elif state.action[value, axis] == 0 and self._leaves(maker, value, axis) == dim:
                found.append((int(self._op_place[maker, axis]), value, maker))
        found += self._drawing(op, mapping, axis)
        for value, dim in zip(program.results_of(op), mapping.results, strict=True):
            if state.action[value, axis] == dim + 1:
                found.append((int(self._value_place[value, axis]), value, -1))
            elif state.action[value, axis] == 0:
                found += [(int(self._op_place[o, axis]), value, o) for o in self._slicing(value, dim, axis)]
        return (row for row in found if 0 <= row[0] < before)

    def _drawing(self, op: int, mapping: TileMapping, axis: int) -> Iterator[tuple[int, int, int]]:
        """As `_evidence`: tiles that drew the mapping."""
        state = self._partitioning.state
        for operand, dim in mapping.drawn_by:
            value = int(self._program.operands_of(op)[operand])
            maker = int(self._program.value_op[value])
            if state.action[value, axis] == dim + 1:
                yield int(self._value_place[value, axis]), value, -1
            elif state.action[value, axis] == 0 and self._leaves(maker, value, axis) == dim:
                yield int(self._op_place[maker, axis]), value, maker

    def _mapping(self, op: int, axis: int) -> TileMapping:
        return self._partitioning.table.of[self._program.op_spec[op]][self._partitioning.state.mapping[op, axis]]

    def _leaves(self, op: int, value: int, axis: int) -> int:
        """The entry of the op's mapping for a result of its; -1 where it has no loop over the axis."""
        if self._partitioning.state.mapping[op, axis] < 0:
            return -1
        return self._mapping(op, axis).results[value - int(self._program.result_ptr[op])]

    def _slicing(self, value: int, dim: int, axis: int) -> Iterator[int]:
        """Ops that read the value in tiles of `dim`."""
        pointer, uses = self._program.users
        for use in uses[pointer[value] : pointer[value + 1]].tolist():
            op = int(self._program.use_op[use])
            if self._partitioning.state.mapping[op, axis] < 0:
                continue
            if self._mapping(op, axis).operands[use - int(self._program.operand_ptr[op])] == dim:
                yield op

    def _action_at(self, place: int) -> int:
        return bisect_right(self._ends, int(place))
