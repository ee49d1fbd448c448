"""From a choice of strategies to decisions whose propagation leads there.

    choice    x over batch, w over batch where it is stored, the matmul over rows      (batch parallelism with ZeRO)
    tile<w>, propagate      the matmul would slice what it sums: not the choice, put off
    tile<x>, propagate      the matmul slices rows: the choice
    tile<w>, propagate      the matmul has its mapping already: the choice

Decisions are tried one after the other on a copy of the starting state, those about groups of arguments first. One that
gives an op another mapping than the choice does is taken back and put off until others are made. What then still
contradicts the choice is tried once more after atomics on the values between that the choice keeps whole. The last
attempt takes what agrees more than it contradicts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.table.partitioning import Partitioning
from autopart.pairwise import PairwiseProblem
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.ilp.labels import in_tiles, is_pending
from autopart.search.ilp.nodes import ARGUMENT, Nodes
from autopart.search.ilp.strategies import PASS
from autopart.search.space.decisions import Decision

UNDECIDED = -1
"""As a code: nothing is asked of the value."""

Decisions = tuple[Decision, ...]


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a choice asks of every op and value; make it with `Wanted.of`.

    mapping[op, axis]    a mapping's number, -1 for none, or `PASS` or less where any will do
    code[value, axis]    what the axis does to the waiting value: 0 whole, 1 + the dim that it tiles; or UNDECIDED
    """

    mapping: np.ndarray
    code: np.ndarray

    @staticmethod
    def of(nodes: Nodes, choice: Sequence[int]) -> Wanted:
        """From the strategy, or the label, of each node."""
        program, axes = nodes.start.program, len(nodes.start.mesh.axis_sizes)
        mapping = np.full((program.op_count, axes), PASS)
        code = np.full((program.value_count, axes), UNDECIDED)
        for op, node in enumerate(nodes.of_op.tolist()):
            options = nodes.strategies[node] if node != ARGUMENT else None
            if options is None:
                continue
            mapping[op] = options.mapping[choice[node]]
            for result, value in enumerate(program.results_of(op)):
                code[value] = [UNDECIDED if is_pending(c) else c for c in options.native[result][choice[node]]]
        for value in np.flatnonzero(nodes.of_value >= 0).tolist():
            node = int(nodes.of_value[value])
            code[value] = [UNDECIDED if is_pending(c) else c for c in nodes.labels[node][choice[node]]]
        _settle_before_readers(nodes, choice, code)
        return Wanted(mapping, code)


def _settle_before_readers(nodes: Nodes, choice: Sequence[int], code: np.ndarray) -> None:
    """A sum that is read once is reduced into the tile that its reader needs."""
    program = nodes.start.program
    alone = (nodes.of_value < 0) & (np.diff(program.users[0]) == 1)
    pointer, user = program.users
    for value in np.flatnonzero(alone & (code == UNDECIDED).any(axis=1)).tolist():
        use = int(user[pointer[value]])
        op = int(program.use_op[use])
        options = nodes.strategies[int(nodes.of_op[op])] if nodes.of_op[op] != ARGUMENT else None
        if options is None:
            continue
        read = in_tiles(options.required[use - int(program.operand_ptr[op])][choice[int(nodes.of_op[op])]])
        code[value] = [UNDECIDED if c == UNDECIDED and is_pending(r) else r if c == UNDECIDED else c
                       for c, r in zip(code[value].tolist(), read, strict=True)]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Weights:
    """What it matters, in seconds, which strategy an op has and in which label a value waits; make it with `of`.

    op[op]          the most that another strategy of the op costs more
    value[value]    the most that another label costs more in redistributions; 0 for values that do not wait
    """

    op: np.ndarray
    value: np.ndarray

    @staticmethod
    def of(nodes: Nodes, problem: PairwiseProblem) -> Weights:
        """From the costs by which the choice was made."""
        first = problem.strategy_start
        own = np.array([_spread(problem.cost[first[i] : first[i + 1]]) for i in range(nodes.count)])
        moved = np.zeros(problem.nodes)
        for edge, ends in enumerate(problem.edge_nodes):
            moved[ends] += _spread(problem.matrix(edge))
        return Weights(
            np.where(nodes.of_op >= 0, own[nodes.of_op], 0.0), np.where(nodes.of_value >= 0, moved[nodes.of_value], 0.0)
        )


def _spread(costs: np.ndarray) -> float:
    finite = costs[np.isfinite(costs)]
    return float(np.ptp(finite)) if len(finite) else 0.0


def decode(task: SearchTask, wanted: Wanted, weights: Weights, seconds: float = math.inf) -> Decisions:
    """Decisions that lead from the task's start to the choice, or near it; what was taken after so many seconds."""
    return _Decoder(task, wanted, weights, time.monotonic() + seconds).decisions()


MOST_VALUES = 50
"""Computed values that are decided about one by one: those that matter most."""

LEAST_SHARE = 1e-3
"""Groups of computed values that matter less than this share of all are left to propagation."""


class _Decoder:
    """A copy of the starting state on which decisions are tried."""

    def __init__(self, task: SearchTask, wanted: Wanted, weights: Weights, deadline: float):
        self._task, self._wanted, self._weights, self._deadline = task, wanted, weights, deadline
        self._partitioning: Partitioning = task.partitioning.copy()
        self._taken: list[Decision] = []

    def decisions(self) -> Decisions:
        """See the module."""
        program = self._task.space.program
        matters = self._weights.value + self._weights.op[program.value_op]
        matters[program.arguments] = 0.0
        heaviest = np.argsort(-matters, kind="stable")[:MOST_VALUES]
        arguments = self._groups(np.array(program.arguments))
        groups = self._groups(self._heavy(matters))
        values = [*self._each(np.array(program.arguments)), *self._each(np.sort(heaviest[matters[heaviest] > 0]))]
        for candidates in (arguments, arguments, groups, values):
            for decision in candidates:
                self._try(decision)
        for decision in (*arguments, *groups):
            if not self._try(decision):
                self._try(decision, with_atomics=True)
        for decision in (*arguments, *groups, *values):
            self._try(decision, most=True)
        return tuple(self._taken)

    def _heavy(self, matters: np.ndarray) -> np.ndarray:
        """The computed values of groups that matter at least `LEAST_SHARE` of all, in program order."""
        group = self._task.space.facts.groups.of
        of_group = np.bincount(group, matters)
        return np.flatnonzero((matters > 0) & (of_group[group] >= LEAST_SHARE * of_group.sum()))

    # ---- candidates

    def _groups(self, values: np.ndarray) -> list[Decision]:
        """The groups of some values that the choice tiles on one dim, along each axis."""
        facts, found = self._task.space.facts, dict[Decision, None]()
        group = facts.groups.of
        for axis in self._task.space.axes:
            code = self._wanted.code[:, self._partitioning.mesh.index(axis)]
            least, most = np.full(facts.groups.count, 99), np.full(facts.groups.count, -99)
            np.minimum.at(least, group, code)
            np.maximum.at(most, group, code)
            alike = (least == most) & (least > 0)
            for value in values[alike[group[values]]].tolist():
                found[Decision("tile_group", int(group[value]), int(code[value]) - 1, axis)] = None
        return list(found)

    def _each(self, values: np.ndarray) -> list[Decision]:
        """Each of some values that the choice tiles, along each axis."""
        found: list[Decision] = []
        for axis in self._task.space.axes:
            code = self._wanted.code[:, self._partitioning.mesh.index(axis)]
            found += [Decision("value", v, int(code[v]) - 1, axis) for v in values[code[values] > 0].tolist()]
        return found

    # ---- one decision

    def _try(self, decision: Decision, *, with_atomics: bool = False, most: bool = False) -> bool:
        """Takes a decision if what follows from it is the choice; True if it was taken, is void, or comes too late."""
        if time.monotonic() >= self._deadline:
            return True
        partitioning = self._partitioning
        mark, length = partitioning.mark(), int(partitioning.state.length[0])
        if not self._task.space.apply(partitioning, decision):
            return True
        agreed, contradicted, values = self._judge(length)
        if contradicted == 0 or (most and agreed > contradicted):
            self._taken.append(decision)
            return True
        partitioning.undo(mark)
        if not with_atomics or not values:
            return False
        kept = [Decision("keep_value", value, -1, axis) for value, axis in values]
        kept = [keep for keep in kept if self._task.space.apply(partitioning, keep)]
        before = len(self._taken)
        self._taken += kept
        if self._try(decision):
            return True
        partitioning.undo(mark)
        del self._taken[before:]
        return False

    def _judge(self, length: int) -> tuple[float, float, list[tuple[int, str]]]:
        """(weight of what became as the choice has it, weight of what did not, values to keep whole along an axis).

        A value is kept whole where it carried the decision against the choice, which leaves the value whole.
        """
        program, state = self._task.space.program, self._partitioning.state
        entries = state.trail[length : int(state.length[0])]
        ops, axes = entries[entries[:, 0] >= 0].T
        asked, got = self._wanted.mapping[ops, axes], state.mapping[ops, axes]
        op_agrees, op_weight = (asked <= PASS) | (asked == got), self._weights.op[ops]
        values, codes = self._results(ops, axes)
        asked = self._wanted.code[values, axes]
        decided = (asked != UNDECIDED) & (codes != UNDECIDED) & (state.action[values, axes] == 0)
        value_agrees, value_weight = ~decided | (asked == codes), self._weights.value[values]
        agreed = op_weight[op_agrees].sum() + value_weight[value_agrees].sum()
        contradicted = op_weight[~op_agrees].sum() + value_weight[~value_agrees].sum()
        names, kept = self._partitioning.mesh.axis_names, dict[tuple[int, str], None]()
        for i in np.flatnonzero((~op_agrees & (op_weight > 0)) | (~value_agrees & (value_weight > 0))).tolist():
            for value in (*program.operands_of(int(ops[i])).tolist(), *program.results_of(int(ops[i]))):
                if self._wanted.code[value, axes[i]] == 0:
                    kept[value, names[axes[i]]] = None
        return float(agreed), float(contradicted), list(kept)

    def _results(self, ops: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first result of each op, the code that its mapping gives the result: UNDECIDED for a pending sum)."""
        partitioning, program = self._partitioning, self._task.space.program
        maps, graph = partitioning.table.arrays, partitioning.graph
        row = maps.start[maps.first[graph.op_spec[ops]] + partitioning.state.mapping[ops, axes]]
        entry = maps.entries[row + graph.operand_ptr[ops + 1] - graph.operand_ptr[ops]].astype(np.int64)
        return program.result_ptr[ops], np.where(entry < LAST_TILE, entry + 1, UNDECIDED)
