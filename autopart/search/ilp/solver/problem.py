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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autopart.core.arguments import is_real
from autopart.core.errors import PartitionError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PairwiseError(PartitionError):
    """A pairwise problem that contradicts itself, a file that holds none, or a start that does not fit one."""


@dataclass(frozen=True, eq=False)
class PairwiseProblem:
    """A pairwise problem as flat arrays, for kernels; `PairwiseProblem.of` makes one from lists.

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
        _check_nodes(self)
        _check_edges(self)
        limit = self.usage_limit
        if limit is not None and not (is_real(limit) and 0 <= limit < math.inf):
            raise PairwiseError(f"usage_limit is {limit!r}", hint="a number of at least 0, or None for no limit")

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
        node_costs = [_row(row, f"nodes: costs[{i}]") for i, row in enumerate(costs)]
        node_usages = (
            [np.zeros(len(row)) for row in node_costs]
            if usages is None
            else [_row(row, f"nodes: usages[{i}]") for i, row in enumerate(usages)]
        )
        _check_lengths(node_costs, node_usages)
        count = len(node_costs)
        live = (
            np.tile([0, 1], (count, 1)) if intervals is None else _integers(intervals, "nodes: intervals", (count, 2))
        )
        ends: list[tuple[int, int]] = []
        matrices: list[Floats] = []
        for e, (u, v, matrix) in enumerate(edges):
            ends.append((u, v))
            entries = _numbers(matrix, f"edges: costs[{e}]")
            _check_matrix(e, u, v, entries, node_costs)
            matrices.append(entries.ravel())
        return PairwiseProblem(
            starts([len(row) for row in node_costs]),
            joined(node_costs),
            joined(node_usages),
            live.astype(np.int64),
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
        shape = (int(self.strategies[u]), int(self.strategies[v]))
        return self.edge_cost[self.edge_start[edge] : self.edge_start[edge + 1]].reshape(shape)

    def cost_of(self, choice: ArrayLike) -> float:
        """What a choice int[n] costs; inf if it takes something forbidden."""
        chosen = self.checked(choice)
        u, v = self.edge_nodes.T
        entries = self.edge_start[:-1] + chosen[u] * self.strategies[v] + chosen[v]
        return float(self.cost[self.strategy_start[:-1] + chosen].sum() + self.edge_cost[entries].sum())

    def usage_over_time(self, choice: ArrayLike) -> Floats:
        """float64[times]: what a choice uses at each time from `first_time` on."""
        used = self.usage[self.strategy_start[:-1] + self.checked(choice)]
        first, alive = self.first_time, self.live[:, 0] < self.live[:, 1]
        change = np.zeros(max(1, int(self.live[alive].max(initial=first)) - first + 1))
        np.add.at(change, self.live[alive, 0] - first, used[alive])
        np.add.at(change, self.live[alive, 1] - first, -used[alive])
        return np.cumsum(change)[:-1]

    @property
    def first_time(self) -> int:
        """The first time at which a node is live."""
        alive = self.live[:, 0] < self.live[:, 1]
        return int(self.live[alive, 0].min()) if alive.any() else 0

    def usage_of(self, choice: ArrayLike) -> float:
        """The most that a choice uses at any time."""
        return float(self.usage_over_time(choice).max(initial=0.0))

    def fits(self, choice: ArrayLike) -> bool:
        """True if a choice stays within the limit at all times."""
        return self.usage_limit is None or self.usage_of(choice) <= self.usage_limit

    def checked(self, choice: ArrayLike) -> Ints:
        """The choice as int64[n]; raises unless it names one strategy of each node."""
        chosen = _integers(choice, "choice", (self.nodes,))
        wrong = np.flatnonzero((chosen < 0) | (chosen >= self.strategies))
        if len(wrong):
            i = int(wrong[0])
            raise PairwiseError(
                f"the choice of node {i} is {chosen[i]}", hint=f"from 0 to {self.strategies[i] - 1}: its strategies"
            )
        return chosen


def starts(lengths: Sequence[int]) -> Ints:
    """Where rows of these lengths start when they are joined: [len + 1]."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


def joined(rows: Sequence[Floats]) -> Floats:
    """The rows after each other."""
    return np.concatenate(rows).astype(np.float64) if rows else np.zeros(0)


def _numbers(value: Any, where: str) -> Floats:
    """An array of numbers, or an error that names its field."""
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise PairwiseError(f"{where} is {str(value)[:60]}", hint="numbers") from None


def _row(value: Any, where: str) -> Floats:
    row = _numbers(value, where)
    if row.ndim != 1 or not len(row):
        raise PairwiseError(
            f"{where} has shape {row.shape}", hint="a list of one number for each strategy, at least one"
        )
    return row


def _integers(value: Any, where: str, shape: tuple[int, ...]) -> Ints:
    array = _numbers(value, where)
    if array.shape != shape and array.size + math.prod(shape):
        raise PairwiseError(f"{where} has shape {array.shape}", hint=f"integers of shape {shape}")
    array = array.reshape(shape)
    if not (np.isfinite(array).all() and (array == np.round(array)).all()):
        raise PairwiseError(f"{where} holds numbers that are no integers", hint=f"integers of shape {shape}")
    return array.astype(np.int64)


def _check_lengths(costs: Sequence[Floats], usages: Sequence[Floats]) -> None:
    if len(costs) != len(usages):
        raise PairwiseError(
            f"nodes: costs has {len(costs)} rows and usages has {len(usages)}", hint="a row for each node"
        )
    for i, (cost, usage) in enumerate(zip(costs, usages, strict=True)):
        if len(cost) != len(usage):
            raise PairwiseError(
                f"nodes: costs[{i}] has {len(cost)} strategies and usages[{i}] has {len(usage)}",
                hint="the same strategies",
            )


def _check_matrix(edge: int, u: Any, v: Any, entries: Floats, costs: Sequence[Floats]) -> None:
    for end in (u, v):
        if isinstance(end, bool) or not isinstance(end, (int, np.integer)) or not 0 <= end < len(costs):
            raise PairwiseError(f"edges: nodes[{edge}] names node {end!r}", hint=f"from 0 to {len(costs) - 1}")
    shape = (len(costs[u]), len(costs[v]))
    if entries.shape not in (shape, (shape[0] * shape[1],)):
        raise PairwiseError(
            f"edges: costs[{edge}] has shape {entries.shape}",
            why=f"node {u} has {shape[0]} strategies and node {v} has {shape[1]}",
            hint=f"{shape[0]} x {shape[1]} numbers",
        )


def _check_nodes(p: PairwiseProblem) -> None:
    """The arrays of the nodes agree, costs are numbers or inf, usages finite and not negative."""
    n, rows = p.nodes, int(p.strategy_start[-1])
    if p.strategy_start[0] != 0 or (p.strategies < 1).any():
        raise PairwiseError("nodes: a node without strategies", hint="at least one strategy a node")
    if p.cost.shape != (rows,) or p.usage.shape != (rows,) or p.live.shape != (n, 2):
        raise PairwiseError(
            f"nodes: costs {p.cost.shape}, usages {p.usage.shape}, intervals {p.live.shape}",
            hint=f"({rows},), ({rows},) and ({n}, 2)",
        )
    node_of = np.repeat(np.arange(n), p.strategies)
    for name, values, legal in (
        ("costs", p.cost, p.cost > -math.inf),
        ("usages", p.usage, (p.usage >= 0) & (p.usage < math.inf)),
    ):
        wrong = np.flatnonzero(~legal)
        if len(wrong):
            i, k = node_of[wrong[0]], wrong[0] - p.strategy_start[node_of[wrong[0]]]
            hint = "a number, or inf to forbid it" if name == "costs" else "a finite number of at least 0"
            raise PairwiseError(f"nodes: {name}[{i}][{k}] is {values[wrong[0]]:g}", hint=hint)
    wrong = np.flatnonzero(p.live[:, 0] > p.live[:, 1])
    if len(wrong):
        i = int(wrong[0])
        raise PairwiseError(f"nodes: intervals[{i}] is {p.live[i].tolist()}", hint="[start, stop) with start <= stop")


def _check_edges(p: PairwiseProblem) -> None:
    """The arrays of the edges agree with the nodes, and costs are numbers or inf."""
    if p.edge_nodes.shape != (len(p.edge_start) - 1, 2):
        raise PairwiseError(f"edges: nodes has shape {p.edge_nodes.shape}", hint=f"({len(p.edge_start) - 1}, 2)")
    for e in np.flatnonzero(((p.edge_nodes < 0) | (p.edge_nodes >= p.nodes)).any(1))[:1]:
        raise PairwiseError(f"edges: nodes[{e}] is {p.edge_nodes[e].tolist()}", hint=f"from 0 to {p.nodes - 1}")
    u, v = p.edge_nodes.T
    for e in np.flatnonzero(u == v)[:1]:
        raise PairwiseError(
            f"edges: nodes[{e}] joins node {u[e]} with itself",
            hint="add the diagonal of its costs to those of the node",
        )
    wanted = p.strategies[u] * p.strategies[v]
    for e in np.flatnonzero(np.diff(p.edge_start) != wanted)[:1]:
        raise PairwiseError(
            f"edges: costs[{e}] has {p.edge_start[e + 1] - p.edge_start[e]} numbers",
            why=f"node {u[e]} has {p.strategies[u[e]]} strategies and node {v[e]} has {p.strategies[v[e]]}",
            hint=f"{wanted[e]} numbers",
        )
    if p.edge_cost.shape != (int(p.edge_start[-1]),):
        raise PairwiseError(f"edges: costs has shape {p.edge_cost.shape}", hint=f"({int(p.edge_start[-1])},)")
    for k in np.flatnonzero(~(p.edge_cost > -math.inf))[:1]:
        e = int(np.searchsorted(p.edge_start, k, "right")) - 1
        raise PairwiseError(
            f"edges: costs[{e}][{k - p.edge_start[e]}] is {p.edge_cost[k]:g}",
            hint="a number, or inf to forbid the pair",
        )
