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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.partitioning import Partitioning
from autopart.search.evaluator import SearchTask
from autopart.search.ilp.labels import is_pending
from autopart.search.ilp.nodes import ARGUMENT, Nodes
from autopart.search.ilp.solver import PairwiseProblem
from autopart.search.ilp.strategies import PASS
from autopart.search.space.decisions import Decision

UNDECIDED = -1
"""As a code: nothing is asked of the value."""

Decisions = tuple[Decision, ...]


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a choice asks of every op and value; make it with `Wanted.of`.

    mapping[op, axis]    a mapping's number, -1 for none, or `PASS` where any will do
    code[value, axis]    what the axis does to the value where it waits: 0 whole, 1 + the dim that it tiles; or UNDECIDED
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
        read = options.required[use - int(program.operand_ptr[op])][choice[int(nodes.of_op[op])]]
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


def decode(task: SearchTask, wanted: Wanted, weights: Weights) -> Decisions:
    """Decisions that lead from the task's start to the choice, or near it."""
    return _Decoder(task, wanted, weights).decisions()


class _Decoder:
    """A copy of the starting state on which decisions are tried."""

    def __init__(self, task: SearchTask, wanted: Wanted, weights: Weights):
        self._task, self._wanted, self._weights = task, wanted, weights
        self._partitioning: Partitioning = task.partitioning.copy()
        self._taken: list[Decision] = []

    def decisions(self) -> Decisions:
        arguments = self._argument_groups()
        for candidates in (arguments, arguments, self._values(), self._values()):
            for decision in candidates:
                self._try(decision)
        for decision in self._values():
            self._try(decision) or self._try(decision, with_atomics=True)
        for decision in self._values():
            self._try(decision, most=True)
        return tuple(self._taken)

    # ---- candidates

    def _argument_groups(self) -> list[Decision]:
        """The groups of arguments whose values the choice tiles on one dim, along each axis."""
        facts, found = self._task.space.facts, dict[Decision, None]()
        for axis in self._task.space.axes:
            code = self._wanted.code[:, self._partitioning.mesh.index(axis)]
            for value in facts.program.arguments:
                group = int(facts.groups.of[value])
                codes = set(code[facts.groups.values(group)].tolist())
                if len(codes) == 1 and 0 < code[value] <= LAST_TILE:
                    found[Decision("tile_group", group, int(code[value]) - 1, axis)] = None
        return list(found)

    def _values(self) -> Iterator[Decision]:
        """What the choice tiles and nothing tiles yet: arguments first, then in program order."""
        program = self._task.space.program
        order = [*program.arguments, *np.setdiff1d(np.arange(program.value_count), program.arguments).tolist()]
        for axis in self._task.space.axes:
            code = self._wanted.code[:, self._partitioning.mesh.index(axis)]
            for value in order:
                dim = int(code[value]) - 1
                if dim >= 0 and not self._partitioning.why_not_tile(value, dim, axis):
                    yield Decision("value", value, dim, axis)

    # ---- one decision

    def _try(self, decision: Decision, *, with_atomics: bool = False, most: bool = False) -> bool:
        """Takes a decision if what follows from it is the choice; True if it was taken or is void."""
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
        program, partitioning = self._task.space.program, self._partitioning
        names, state = partitioning.mesh.axis_names, partitioning.state
        agreed, contradicted, values = 0.0, 0.0, dict[tuple[int, str], None]()
        for op, axis in state.trail[length : int(state.length[0])].tolist():
            results = program.results_of(op) if op >= 0 else ()
            for value in results:
                asked, code = int(self._wanted.code[value, axis]), partitioning.tiled_dim(value, names[axis]) + 1
                if asked == code:
                    agreed += self._weights.value[value]
                elif asked != UNDECIDED and self._weights.value[value] > 0:
                    contradicted += self._weights.value[value]
                    if asked == 0:
                        values[value, names[axis]] = None
            wanted = self._wanted.mapping[op, axis] if op >= 0 else PASS
            if wanted in (PASS, state.mapping[op, axis]):
                agreed += self._weights.op[op] if op >= 0 else 0.0
            elif self._weights.op[op] > 0:
                contradicted += self._weights.op[op]
                for value in (*program.operands_of(op).tolist(), *results):
                    if self._wanted.code[value, axis] == 0:
                        values[value, names[axis]] = None
        return agreed, contradicted, list(values)
