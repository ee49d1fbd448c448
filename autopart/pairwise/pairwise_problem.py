"""The pairwise problem: one strategy for each node, costs on nodes and edges, a limit on what is used at any time.

    node 0  costs  3  5      usages  8  2      live in [0, 4)
    node 1  costs  0  1  9   usages  6  4  0   live in [2, 6)
    edge (0, 1)  costs  0 7 7        usage limit 10
                        7 0 2

    choice (0, 0) costs 3 + 0 + 0 = 3, but uses 8 + 6 = 14 at time 2
    choice (1, 1) costs 5 + 1 + 0 = 6, and uses 2 + 4 = 6 at time 2: the optimum

This is what sharding comes down to: a node is a tensor or an op, a strategy its layout, an edge a redistribution, usage
its bytes while it is live. An infinite cost forbids a strategy, or a pair of strategies.

    minimise    sum_i cost_i(x_i)  +  sum_(i,j) cost_ij(x_i, x_j)
    subject to  sum_(i live at t) usage_i(x_i)  <=  usage_limit       for every time t
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autopart.base.arguments import is_finite
from autopart.pairwise.binding_times import sums_at
from autopart.pairwise.field_checks import (
    Floats,
    Ints,
    check_ends,
    check_entries,
    check_intervals,
    check_lengths,
    check_matrix,
    integers,
    numbers,
    row,
    shown,
)
from autopart.pairwise.pairwise_error import Field, PairwiseError


@dataclass(frozen=True, eq=False)
class PairwiseProblem:
    """A pairwise problem as flat arrays, for kernels; `PairwiseProblem.of` makes and checks one from lists.

    n nodes with S strategies in all, m edges with E entries in all. Strategy k of node i is row
    `strategy_start[i] + k`. Sums of integers below 2**53 are exact.

    - strategy_start: int64[n + 1]
    - cost: float64[S]; inf forbids the strategy
    - usage: float64[S], not negative
    - live: int64[n, 2]; the node is live at the times t with live[i, 0] <= t < live[i, 1]
    - edge_nodes: int64[m, 2], two different nodes
    - edge_start: int64[m + 1]
    - edge_cost: float64[E], row by row: entry (a, b) of edge e is edge_start[e] + a * strategies of the second + b
    - usage_limit: None for no limit
    """

    strategy_start: Ints
    cost: Floats
    usage: Floats
    live: Ints
    edge_nodes: Ints
    edge_start: Ints
    edge_cost: Floats
    usage_limit: float | None = None
    name: str = "pairwise problem"

    def __post_init__(self) -> None:
        says = "a number, or inf to forbid it"
        used = (self.usage >= 0) & (self.usage < math.inf)
        check_entries(self.cost, self.strategy_start, self.cost > -math.inf, ("nodes", "costs"), says)
        check_entries(self.usage, self.strategy_start, used, ("nodes", "usages"), "a finite number of at least 0")
        check_intervals(self.live)
        check_entries(self.edge_cost, self.edge_start, self.edge_cost > -math.inf, ("edges", "costs"), says)
        limit = self.usage_limit
        if limit is not None and not (is_finite(limit) and limit >= 0):
            hint = "a number of at least 0, or None for no limit"
            raise PairwiseError(f"is {shown(limit)}", field=("usage_limit",), hint=hint)

    @staticmethod
    def of(
        costs: Sequence[ArrayLike],
        usages: Sequence[ArrayLike] | None = None,
        intervals: ArrayLike | None = None,
        edges: Sequence[tuple[int, int, ArrayLike]] = (),
        usage_limit: float | None = None,
        name: str = "pairwise problem",
    ) -> PairwiseProblem:
        """A problem from one row of costs and usages a node and one (u, v, matrix) an edge.

        A matrix has a row for each strategy of u and a column for each of v. Without usages nothing is used; without
        intervals every node is live in [0, 1).

        >>> problem = PairwiseProblem.of(
        ...     costs=[[3, 5], [0, 1, 9]], usages=[[8, 2], [6, 4, 0]], intervals=[[0, 4], [2, 6]],
        ...     edges=[(0, 1, [[0, 7, 7], [7, 0, 2]])], usage_limit=10,
        ... )
        >>> problem.cost_of([1, 1]), problem.usage_of([1, 1]), problem.usage_of([0, 0])
        (6.0, 6.0, 14.0)
        """
        node_costs = [row(given, ("nodes", "costs", i)) for i, given in enumerate(costs)]
        if usages is None:
            usages = [np.zeros(len(cost)) for cost in node_costs]
        node_usages = [row(given, ("nodes", "usages", i)) for i, given in enumerate(usages)]
        check_lengths(node_costs, node_usages)
        count = len(node_costs)
        given = np.tile([0, 1], (count, 1)) if intervals is None else intervals
        live = integers(given, ("nodes", "intervals"), (count, 2))
        ends: list[tuple[int, int]] = []
        matrices: list[Floats] = []
        for e, (u, v, matrix) in enumerate(edges):
            check_ends(e, (u, v), count)
            entries = numbers(matrix, ("edges", "costs", e))
            check_matrix(e, (u, v), entries.shape, (len(node_costs[u]), len(node_costs[v])))
            ends.append((u, v))
            matrices.append(entries.ravel())
        return PairwiseProblem(
            starts([len(row) for row in node_costs]),
            joined(node_costs),
            joined(node_usages),
            live,
            np.array(ends, np.int64).reshape(-1, 2),
            starts([len(entries) for entries in matrices]),
            joined(matrices),
            usage_limit,
            name,
        )

    @property
    def nodes(self) -> int:
        """Their number."""
        return len(self.strategy_start) - 1

    @property
    def edges(self) -> int:
        """Their number."""
        return len(self.edge_nodes)

    @property
    def strategies(self) -> Ints:
        """int64[n]: strategies of each node."""
        return np.diff(self.strategy_start)

    def matrix(self, edge: int) -> Floats:
        """Costs of an edge: [strategies of its first node, strategies of its second], a view."""
        u, v = self.edge_nodes[edge]
        first = self.strategy_start
        shape = (int(first[u + 1] - first[u]), int(first[v + 1] - first[v]))
        return self.edge_cost[self.edge_start[edge] : self.edge_start[edge + 1]].reshape(shape)

    def cost_of(self, choice: ArrayLike) -> float:
        """What a choice int[n] costs; inf if it takes something forbidden."""
        chosen = self.checked(choice)
        u, v = self.edge_nodes.T
        entries = self.edge_start[:-1] + chosen[u] * self.strategies[v] + chosen[v]
        return float(self.cost[self.strategy_start[:-1] + chosen].sum() + self.edge_cost[entries].sum())

    def usage_at(self, choice: ArrayLike) -> tuple[Ints, Floats]:
        """(int64[T], float64[T]): the times at which nodes come to live, ascending, and what a choice uses then.

        Nothing is used before the first, and no more between two of them than at the first of the two.
        """
        used, alive = self.usage[self.strategy_start[:-1] + self.checked(choice)], self.live[:, 0] < self.live[:, 1]
        begins, stops = self.live[alive].T
        times = np.unique(begins)
        return times, sums_at(times, begins, stops, used[alive])

    def usage_of(self, choice: ArrayLike) -> float:
        """The most that a choice uses at any time."""
        return float(self.usage_at(choice)[1].max(initial=0.0))

    def fits(self, choice: ArrayLike) -> bool:
        """True if a choice stays within the limit at all times."""
        return self.usage_limit is None or self.usage_of(choice) <= self.usage_limit

    def checked(self, choice: ArrayLike, field: Field = ("choice",)) -> Ints:
        """The choice as int64[n]; raises unless it names one strategy of each node. `field` is what errors call it."""
        chosen = integers(choice, field, (self.nodes,))
        for i in np.flatnonzero((chosen < 0) | (chosen >= self.strategies))[:1]:
            says = f"a strategy of the node, from 0 to {self.strategies[i] - 1}"
            raise PairwiseError(f"is {chosen[i]}", field=(*field, int(i)), hint=says)
        return chosen


def starts(lengths: Sequence[int]) -> Ints:
    """Where rows of these lengths start when they are joined: [len + 1]."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


def joined(rows: Sequence[Floats]) -> Floats:
    """The rows after each other."""
    return np.concatenate(rows).astype(np.float64) if rows else np.zeros(0)
