"""A smaller problem with the same optimum, and the way back.

    one strategy left          fold its costs into the neighbours, its usage into the room that the others have
    a row of an edge all inf   the strategy goes
    b never worse than a       a goes: cost_a - cost_b + sum over edges of min over x of (P(a, x) - P(b, x)) >= 0,
                               and b uses no more (Goldstein's dead-end elimination)
    no edge left               the cheapest strategy
    one edge (v)               v's cost of y grows by min over x of cost(x) + P(x, y)
    two edges (u, v)           an edge (u, v) with cost(y, z) = min over x of P(x, y) + cost(x) + Q(x, z)

The last three hold only for nodes whose usage does not depend on the strategy at any time that can bind; what they use
goes into the room. Each elimination leaves its argmin table on a stack; `Reduction.restored` pops it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autopart.base.jit.kernels import allocating_kernel, kernel
from autopart.pairwise.binding_times import binding_times, sums_at
from autopart.pairwise.pairwise_problem import Floats, Ints, PairwiseProblem, joined, starts

FILL = 1.0
"""An edge from an elimination may have so many times the entries of the two edges that it replaces."""

NO_ROOM = "usage"
"""What `Reduction.infeasible` says where the least usage exceeds the limit."""

DOMINANCE_WORK = 30_000_000
"""Nodes whose dominance takes more entry comparisons than this keep all strategies."""


@dataclass(frozen=True)
class Eliminated:
    """A node that was taken out: its best strategy for each choice of the nodes it was joined with."""

    node: int
    neighbours: tuple[int, ...]
    labels: tuple[Ints, ...]
    """Strategies that each neighbour had at that time, ascending."""
    best: Ints
    """Strategy by the positions of the neighbours' choices in `labels`."""


class Reduction:
    """What is left of a problem, as a graph of matrices; made and worked off by `reduced`.

    `labels[i]` are the strategies that node i still has; `links[i][j]` is the matrix of (i, j), rows for i, and
    `links[j][i]` its transpose, a view. `room[t]` is what is left of the limit at the binding time t.
    """

    def __init__(self, problem: PairwiseProblem):
        s = problem.strategy_start
        self.problem, self.offset, self.infeasible = problem, 0.0, ""
        self.labels = [np.arange(k) for k in problem.strategies]
        self.cost = [problem.cost[a:b].copy() for a, b in pairwise(s)]
        self.usage = [problem.usage[a:b] for a, b in pairwise(s)]
        self.links: list[dict[int, Floats]] = [{} for _ in range(problem.nodes)]
        self.stack: list[Eliminated] = []
        self.alive = np.ones(problem.nodes, bool)
        limit = math.inf if problem.usage_limit is None else float(problem.usage_limit)
        most = np.maximum.reduceat(problem.usage, s[:-1]) if problem.nodes else np.zeros(0)
        self.times = binding_times(problem.live, most, limit)
        self.room = np.full(len(self.times), limit)
        self.begin = np.searchsorted(self.times, problem.live[:, 0])
        self.end = np.searchsorted(self.times, problem.live[:, 1])
        for e in range(problem.edges):
            u, v = problem.edge_nodes[e].tolist()
            self.join(u, v, problem.matrix(e))

    def join(self, u: int, v: int, matrix: Floats) -> None:
        """Adds an edge; parallel edges add up."""
        known = self.links[u].get(v)
        self.link(u, v, matrix if known is None else known + matrix)

    def link(self, u: int, v: int, matrix: Floats) -> None:
        """Sets the matrix of (u, v)."""
        self.links[u][v], self.links[v][u] = matrix, matrix.T

    def counts(self, i: int) -> bool:
        """True if the strategies of node i differ in usage at a binding time."""
        return bool(self.begin[i] < self.end[i] and self.usage[i].min() < self.usage[i].max())

    def keep(self, i: int, kept: Ints) -> None:
        """Leaves node i these of its strategies, by position."""
        self.labels[i], self.cost[i], self.usage[i] = self.labels[i][kept], self.cost[i][kept], self.usage[i][kept]
        for j, matrix in self.links[i].items():
            self.link(i, j, matrix[kept])

    def take_out(self, i: int, best: Ints) -> None:
        """Removes node i, whose usage is the same whatever it chooses.

        `best` has the position of its strategy for each choice of its neighbours, or one position for all.
        """
        around = tuple(self.links[i])
        decides = around if best.ndim else ()
        self.stack.append(Eliminated(i, decides, tuple(self.labels[j] for j in decides), self.labels[i][best]))
        self.room[self.begin[i] : self.end[i]] -= self.usage[i][0] if self.begin[i] < self.end[i] else 0.0
        for j in around:
            del self.links[j][i]
        self.links[i], self.alive[i] = {}, False

    def least_over_time(self) -> Floats:
        """float64[T]: what the nodes that are left use at least at each binding time."""
        change = np.zeros(len(self.times) + 1)
        least = np.array([self.usage[i].min() for i in self.nodes])
        np.add.at(change, self.begin[self.nodes], least)
        np.add.at(change, self.end[self.nodes], -least)
        return np.cumsum(change)[:-1]

    @property
    def nodes(self) -> Ints:
        """The nodes that are left."""
        return np.flatnonzero(self.alive)

    def rest(self) -> PairwiseProblem:
        """The nodes that are left as a problem over binding times; its limit is that of `room`, per time."""
        nodes = self.nodes
        number = np.full(len(self.alive), -1)
        number[nodes] = np.arange(len(nodes))
        ends = [(int(i), j) for i in nodes for j in self.links[i] if i < j]
        return PairwiseProblem(
            starts([len(self.cost[i]) for i in nodes]),
            joined([self.cost[i] for i in nodes]),
            joined([self.usage[i] for i in nodes]),
            np.stack([self.begin[nodes], self.end[nodes]], 1).reshape(-1, 2),
            number[np.array(ends, np.int64).reshape(-1, 2)],
            starts([self.links[i][j].size for i, j in ends]),
            joined([self.links[i][j].ravel() for i, j in ends]),
            name=self.problem.name,
        )

    def restored(self, choice: Ints) -> Ints:
        """A choice for the original problem from one for `rest()`: of the same cost, less `offset`."""
        full = np.zeros(len(self.alive), np.int64)
        for i, k in zip(self.nodes, choice, strict=True):
            full[i] = self.labels[i][k]
        for step in reversed(self.stack):
            at = [np.searchsorted(known, full[j]) for j, known in zip(step.neighbours, step.labels, strict=True)]
            full[step.node] = step.best[tuple(at)]
        return full

    def narrowed(self, choice: Ints) -> Ints:
        """A choice for the original problem as one for `rest()`; for a strategy that went, the cheapest left."""
        at = np.zeros(len(self.nodes), np.int64)
        for n, i in enumerate(self.nodes):
            k = min(int(np.searchsorted(self.labels[i], choice[i])), len(self.labels[i]) - 1)
            at[n] = k if self.labels[i][k] == choice[i] else int(self.cost[i].argmin())
        return at


def reduced(problem: PairwiseProblem) -> Reduction:
    """The problem after every reduction has been applied until none applies."""
    state = Reduction(problem)
    queue, queued = deque(range(problem.nodes)), np.ones(problem.nodes, bool)
    while queue and not state.infeasible:
        i = queue.popleft()
        queued[i] = False
        around = list(state.links[i])
        if state.alive[i] and (prune(state, i) | eliminate(state, i)):
            for j in [*around, i] if state.alive[i] else around:
                if state.alive[j] and not queued[j]:
                    queued[j] = True
                    queue.append(j)
    if not state.infeasible and (state.least_over_time() > state.room).any():
        state.infeasible = NO_ROOM
    return state


def least_usage(problem: PairwiseProblem) -> float:
    """The most that is used at any time when every node uses the least it can, whatever its neighbours allow."""
    least = np.minimum.reduceat(problem.usage, problem.strategy_start[:-1])
    times = binding_times(problem.live, least, -math.inf)
    return float(sums_at(times, problem.live[:, 0], problem.live[:, 1], least).max(initial=0.0))


def prune(state: Reduction, i: int) -> bool:
    """Drops strategies of node i that cannot be chosen, or need not be. True if one went."""
    legal = np.isfinite(state.cost[i])
    links = [np.ascontiguousarray(matrix) for matrix in state.links[i].values()]
    for matrix in links:
        drop_forbidden(matrix, legal)
    if not legal.any():
        state.infeasible = f"node {i} has no strategy that its neighbours allow"
        return False
    changed = not legal.all()
    if changed:
        state.keep(i, np.flatnonzero(legal))
        links = [np.ascontiguousarray(matrix) for matrix in state.links[i].values()]
    count = len(state.cost[i])
    if count > 1 and count**2 * sum(m.shape[1] for m in links) <= DOMINANCE_WORK:
        lead = state.cost[i][:, None] - state.cost[i][None, :]
        if state.counts(i):
            lead[state.usage[i][:, None] < state.usage[i][None, :]] = -np.inf
        for matrix in links:
            add_least_lead(matrix, lead)
        kept = undominated(lead)
        if len(kept) < count:
            state.keep(i, kept)
            changed = True
    return changed


@kernel
def drop_forbidden(matrix: Floats, legal: np.ndarray) -> None:
    """legal[a] becomes False where matrix[a] is infinite throughout."""
    for a in range(matrix.shape[0]):
        x = 0
        while x < matrix.shape[1] and not np.isfinite(matrix[a, x]):
            x += 1
        if x == matrix.shape[1]:
            legal[a] = False


@kernel
def add_least_lead(matrix: Floats, lead: Floats) -> None:
    """lead[a, b] += min over x of matrix[a, x] - matrix[b, x]: how much b is ahead of a at least, whatever x."""
    rows, columns = matrix.shape
    for a in range(rows):
        for b in range(rows):
            if a == b or lead[a, b] == -np.inf:
                continue
            least = np.inf
            for x in range(columns):
                if matrix[a, x] < np.inf:
                    least = min(least, matrix[a, x] - matrix[b, x])
                    if least == -np.inf:
                        break
            lead[a, b] += least


@allocating_kernel
def undominated(lead: Floats) -> Ints:
    """The strategies that no other that is kept is ahead of, or level with."""
    count = len(lead)
    kept = np.ones(count, np.bool_)
    for a in range(count):
        for b in range(count):
            if a != b and kept[b] and lead[a, b] >= 0.0:
                kept[a] = False
                break
    return np.flatnonzero(kept)


def eliminate(state: Reduction, i: int) -> bool:
    """Takes node i out if that is exact and fills little. True if it went."""
    around = list(state.links[i])
    if len(state.cost[i]) == 1:
        state.offset += float(state.cost[i][0])
        for j in around:
            state.cost[j] = state.cost[j] + state.links[i][j][0]
        state.take_out(i, np.zeros((), np.int64))
        return True
    if len(around) > 2 or state.counts(i):
        return False
    if not around:
        state.offset += float(state.cost[i].min())
        state.take_out(i, np.array(state.cost[i].argmin()))
        return True
    if len(around) == 1:
        (v,) = around
        table = state.cost[i][:, None] + state.links[i][v]
        state.cost[v] = state.cost[v] + table.min(0)
        state.take_out(i, table.argmin(0))
        return True
    return _eliminate_between(state, i, *around)


def _eliminate_between(state: Reduction, i: int, u: int, v: int) -> bool:
    """Replaces node i between u and v by an edge (u, v)."""
    to_u, to_v = state.links[i][u], state.links[i][v]
    size = to_u.shape[1] * to_v.shape[1]
    if v not in state.links[u] and size > FILL * (to_u.size + to_v.size):
        return False
    if size * len(state.cost[i]) > DOMINANCE_WORK:
        return False
    joint = np.empty((to_u.shape[1], to_v.shape[1]))
    best = np.empty(joint.shape, np.int64)
    least_between(np.ascontiguousarray(to_u + state.cost[i][:, None]), np.ascontiguousarray(to_v), joint, best)
    state.take_out(i, best)
    state.join(u, v, joint)
    return True


@kernel
def least_between(to_u: Floats, to_v: Floats, joint: Floats, best: Ints) -> None:
    """joint[y, z] = min over x of to_u[x, y] + to_v[x, z], and the first such x."""
    joint[:] = np.inf
    best[:] = 0
    for x in range(to_u.shape[0]):
        for y in range(to_u.shape[1]):
            for z in range(to_v.shape[1]):
                value = to_u[x, y] + to_v[x, z]
                if value < joint[y, z]:
                    joint[y, z] = value
                    best[y, z] = x
