"""A reduced problem as the arrays that kernels walk: strategies, edges, the edges of each node, room over time."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import allocating_kernel, kernel
from autopart.pairwise.pairwise_problem import Floats, Ints, PairwiseProblem

FORBIDDEN = 2.0
"""What is forbidden costs so many times all else where messages must be finite."""


class Network(NamedTuple):
    """n nodes, S strategies in all, m edges (u < v), T times. What kernels share, and none of them changes.

    start int64[n + 1]: strategies of a node. cost float64[S].
    part int64[n + 1]: the parts of a node's usage, P in all: part p is live at times [begin[p], end[p]), and uses
    usage[use_start[p] + k] with strategy k of the node. A node of a problem is one part, several nodes in one are more.
    u, v int64[m]; edge_start int64[m + 1], edge_cost float64[E]: row by row, rows for u.
    u_start, v_start int64[m + 1]: where an edge's message to either end starts in `Messages`.
    link_start int64[n + 1], link int64[2 m]: the edges of a node, those to lower nodes first.
    room float64[T]: what may be used at each time.
    """

    start: Ints
    cost: Floats
    part: Ints
    begin: Ints
    end: Ints
    use_start: Ints
    usage: Floats
    u: Ints
    v: Ints
    edge_start: Ints
    edge_cost: Floats
    u_start: Ints
    v_start: Ints
    link_start: Ints
    link: Ints
    room: Floats


def network(problem: PairwiseProblem, room: Floats) -> Network:
    """The arrays of a problem over binding times, whose edges lead from lower to higher nodes."""
    counts, (u, v) = problem.strategies, problem.edge_nodes.T
    ends = np.concatenate([u, v])
    others = np.concatenate([v, u])
    order = np.lexsort((others, ends))
    edge = np.tile(np.arange(problem.edges), 2)
    zero = np.zeros(1, np.int64)
    return Network(
        problem.strategy_start,
        problem.cost,
        np.arange(problem.nodes + 1),
        np.ascontiguousarray(problem.live[:, 0]),
        np.ascontiguousarray(problem.live[:, 1]),
        problem.strategy_start,
        problem.usage,
        np.ascontiguousarray(u),
        np.ascontiguousarray(v),
        problem.edge_start,
        problem.edge_cost,
        np.concatenate([zero, np.cumsum(counts[u])]),
        np.concatenate([zero, np.cumsum(counts[v])]),
        np.concatenate([zero, np.cumsum(np.bincount(ends, minlength=problem.nodes))]),
        edge[order],
        room,
    )


def finite_network(problem: PairwiseProblem) -> tuple[Network, dict[tuple[int, int], int]]:
    """The arrays of a problem without room, in which forbidden pairs are dear; and the number of each edge."""
    legal = np.isfinite(problem.edge_cost)
    dearest = FORBIDDEN * (problem.edge_cost[legal].max(initial=0.0) + problem.cost.max(initial=0.0))
    net = network(replace(problem, edge_cost=np.where(legal, problem.edge_cost, dearest)), np.ones(1))
    return net, {pair: e for e, pair in enumerate(zip(net.u.tolist(), net.v.tolist(), strict=True))}


@allocating_kernel
def used_over_time(net: Network, choice: Ints) -> Floats:
    """float64[T]: what a choice uses at each time."""
    change = np.zeros(len(net.room) + 1)
    for i in range(len(choice)):
        for p in range(net.part[i], net.part[i + 1]):
            amount = net.usage[net.use_start[p] + choice[i]]
            change[net.begin[p]] += amount
            change[net.end[p]] -= amount
    return np.cumsum(change)[:-1]


@allocating_kernel
def paid(net: Network, price: Floats) -> Floats:
    """float64[S]: what a strategy pays for its usage, at the price float64[T] of a unit at each time."""
    before, found = np.zeros(len(price) + 1), np.zeros(len(net.cost))
    before[1:] = np.cumsum(price)
    for i in range(len(net.start) - 1):
        for p in range(net.part[i], net.part[i + 1]):
            per_unit = before[net.end[p]] - before[net.begin[p]]
            if per_unit != 0.0:
                for k in range(net.start[i + 1] - net.start[i]):
                    found[net.start[i] + k] += per_unit * net.usage[net.use_start[p] + k]
    return found


@kernel
def cost_of(net: Network, choice: Ints) -> float:
    """What a choice costs; inf if it takes something forbidden."""
    total = 0.0
    for i in range(len(choice)):
        total += net.cost[net.start[i] + choice[i]]
    for e in range(len(net.u)):
        width = net.start[net.v[e] + 1] - net.start[net.v[e]]
        total += net.edge_cost[net.edge_start[e] + choice[net.u[e]] * width + choice[net.v[e]]]
    return float(total)


def largest_cost(net: Network) -> float:
    """The largest cost of a strategy or pair that is not forbidden; 1 where all are 0."""
    finite = net.edge_cost[np.isfinite(net.edge_cost)]
    return float(max(np.abs(net.cost).max(initial=0.0), np.abs(finite).max(initial=0.0))) or 1.0
