"""The pairwise problem as an integer linear program, in arrays that go straight into a solver.

    minimise    sum cost . s  +  sum edge_cost . e
    choice      sum over k of s[i, k] = 1                       for each node i
    marginals   sum over b of e[a, b] = s[u, a]                 for each edge (u, v) and strategy a of u
                sum over a of e[a, b] = s[v, b]                 for each edge (u, v) and strategy b of v
    room        sum over i live at t of usage . s <= room[t]    for each time t
    s binary, e in [0, 1]

Pairs that are forbidden have no variable. With s integral the marginals leave e no choice, so e need not be declared
integer. The relaxation is the local polytope, whose optimum is what the bound of `dual` climbs towards.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autopart.search.ilp.solver.pairwise_problem import Floats, Ints, PairwiseProblem


class IntegerProgram(NamedTuple):
    """min cost . x with lower <= A x <= upper and 0 <= x <= 1; the first `binaries` variables are integer.

    A is given by columns: start int64[columns + 1], row int64[nonzeros], value float64[nonzeros]. Variable j below
    `binaries` is strategy j of the problem.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    start: Ints
    row: Ints
    value: Floats
    binaries: int


def integer_program(problem: PairwiseProblem, room: Floats) -> IntegerProgram:
    """The program of a problem over times [0, len(room))."""
    counts, strategies = problem.strategies, len(problem.cost)
    edge, first, second, entry = _pairs(problem)
    u, v = problem.edge_nodes.T
    rows_u = problem.nodes + np.concatenate([[0], np.cumsum(counts[u] + counts[v])])
    row_of_first = rows_u[edge] + first
    row_of_second = rows_u[edge] + counts[u[edge]] + second
    # marginals: -1 for each strategy of an end in its row of each edge
    side = np.concatenate([u, v])
    base = np.concatenate([rows_u[:-1], rows_u[:-1] + counts[u]])
    of_edge = np.repeat(np.arange(len(side)), counts[side])
    within = _within(counts[side])
    room_row = int(rows_u[-1]) + np.zeros(1, np.int64)
    node = np.repeat(np.arange(problem.nodes), counts)
    lengths = np.where(problem.usage > 0, (problem.live[:, 1] - problem.live[:, 0])[node], 0)
    use = np.repeat(np.arange(strategies), lengths)
    columns = np.concatenate(
        [
            np.arange(strategies),
            problem.strategy_start[side[of_edge]] + within,
            use,
            strategies + np.tile(np.arange(len(edge)), 2),
        ]
    )
    rows = np.concatenate(
        [
            node,
            base[of_edge] + within,
            room_row + problem.live[node[use], 0] + _within(lengths),
            row_of_first,
            row_of_second,
        ]
    )
    values = np.concatenate([np.ones(strategies), -np.ones(len(of_edge)), problem.usage[use], np.ones(2 * len(edge))])
    order = np.lexsort((rows, columns))
    width = strategies + len(edge)
    equal = np.concatenate([np.ones(problem.nodes), np.zeros(int(rows_u[-1]) - problem.nodes)])
    return IntegerProgram(
        np.concatenate([problem.cost, problem.edge_cost[entry]]),
        np.concatenate([equal, np.full(len(room), -np.inf)]),
        np.concatenate([equal, room]),
        np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=width))]).astype(np.int64),
        rows[order],
        values[order],
        strategies,
    )


def _pairs(problem: PairwiseProblem) -> tuple[Ints, Ints, Ints, Ints]:
    """The pairs that are not forbidden: edge, strategy of its first node, of its second, entry of edge_cost."""
    entry = np.flatnonzero(np.isfinite(problem.edge_cost))
    edge = np.searchsorted(problem.edge_start, entry, "right") - 1
    width = problem.strategies[problem.edge_nodes[edge, 1]]
    local = entry - problem.edge_start[edge]
    return edge, local // width, local % width, entry


def _within(lengths: Ints) -> Ints:
    """0, 1, .. for each run of these lengths, joined."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def choice_of(problem: PairwiseProblem, chosen: Floats) -> Ints:
    """int64[n]: the strategy with the largest value of each node, from values of the binaries."""
    start = problem.strategy_start
    return np.array([int(np.argmax(chosen[a:b])) for a, b in pairwise(start)], np.int64)
