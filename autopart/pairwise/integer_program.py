"""A network as an integer linear program, in arrays that go straight into a solver.

    minimise    sum cost . s  +  sum edge_cost . e
    choice      sum over k of s[i, k] = 1                       for each node i
    marginals   sum over b of e[a, b] = s[u, a]                 for each edge (u, v) and strategy a of u
                sum over a of e[a, b] = s[v, b]                 for each edge (u, v) and strategy b of v
    room        sum over i live at t of usage . s <= room[t]    for each of some times t
    s binary, e in [0, 1]

With fewer times than there are it is a relaxation: `exact` adds those at which an answer is over. Pairs that are
forbidden have no variable. With s integral the marginals leave e no choice, so e need not be declared
integer. The relaxation is the local polytope, whose optimum is what the bound of `dual` climbs towards.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autopart.pairwise.network import Network
from autopart.pairwise.pairwise_problem import Floats, Ints


class IntegerProgram(NamedTuple):
    """min cost . x with lower <= A x <= upper and 0 <= x <= 1; the first `binaries` variables are integer.

    A is given by columns: start int64[columns + 1], row int64[nonzeros], value float64[nonzeros]. Variable j below
    `binaries` is strategy j of the network.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    start: Ints
    row: Ints
    value: Floats
    binaries: int


def integer_program(net: Network, times: Ints) -> IntegerProgram:
    """The program of a network with the room of some of its times, ascending."""
    counts, strategies, nodes = np.diff(net.start), len(net.cost), len(net.start) - 1
    edge, first, second, entry = _pairs(net)
    u, v = net.u, net.v
    rows_u = nodes + np.concatenate([[0], np.cumsum(counts[u] + counts[v])])
    row_of_first = rows_u[edge] + first
    row_of_second = rows_u[edge] + counts[u[edge]] + second
    # marginals: -1 for each strategy of an end in its row of each edge
    side = np.concatenate([u, v])
    base = np.concatenate([rows_u[:-1], rows_u[:-1] + counts[u]])
    of_edge = np.repeat(np.arange(len(side)), counts[side])
    within = _within(counts[side])
    user, time, used = _usage_rows(net, times)
    columns = np.concatenate(
        [
            np.arange(strategies),
            net.start[side[of_edge]] + within,
            user,
            strategies + np.tile(np.arange(len(edge)), 2),
        ]
    )
    rows = np.concatenate(
        [
            np.repeat(np.arange(nodes), counts),
            base[of_edge] + within,
            int(rows_u[-1]) + time,
            row_of_first,
            row_of_second,
        ]
    )
    values = np.concatenate([np.ones(strategies), -np.ones(len(of_edge)), used, np.ones(2 * len(edge))])
    order = np.lexsort((rows, columns))
    width = strategies + len(edge)
    equal = np.concatenate([np.ones(nodes), np.zeros(int(rows_u[-1]) - nodes)])
    return IntegerProgram(
        np.concatenate([net.cost, net.edge_cost[entry]]),
        np.concatenate([equal, np.full(len(times), -np.inf)]),
        np.concatenate([equal, net.room[times]]),
        np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=width))]).astype(np.int64),
        rows[order],
        values[order],
        strategies,
    )


def _usage_rows(net: Network, times: Ints) -> tuple[Ints, Ints, Floats]:
    """What is used at which of the times: strategy, position of the time, amount; parts of one node add up."""
    counts = np.diff(net.start)
    node = np.repeat(np.arange(len(counts)), np.diff(net.part))
    entry_part = np.repeat(np.arange(len(node)), counts[node])
    strategy = net.start[node[entry_part]] + _within(counts[node])
    first, last = np.searchsorted(times, net.begin), np.searchsorted(times, net.end)
    lengths = np.where(net.usage > 0, (last - first)[entry_part], 0)
    entry = np.repeat(np.arange(len(entry_part)), lengths)
    at = first[entry_part[entry]] + _within(lengths)
    found, which = np.unique(strategy[entry] * max(1, len(times)) + at, return_inverse=True)
    amount = np.bincount(which.reshape(-1), net.usage[entry], minlength=len(found))
    return found // max(1, len(times)), found % max(1, len(times)), amount.astype(np.float64)


def _pairs(net: Network) -> tuple[Ints, Ints, Ints, Ints]:
    """The pairs that are not forbidden: edge, strategy of its first node, of its second, entry of edge_cost."""
    entry = np.flatnonzero(np.isfinite(net.edge_cost))
    edge = np.searchsorted(net.edge_start, entry, "right") - 1
    width = np.diff(net.start)[net.v[edge]]
    local = entry - net.edge_start[edge]
    return edge, local // width, local % width, entry


def _within(lengths: Ints) -> Ints:
    """0, 1, .. for each run of these lengths, joined."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def choice_of(net: Network, chosen: Floats) -> Ints:
    """int64[n]: the strategy with the largest value of each node, from values of the binaries."""
    return np.array([int(np.argmax(chosen[a:b])) for a, b in pairwise(net.start.tolist())], np.int64)


def values_of(net: Network, choice: Ints) -> Floats:
    """float64[columns]: the variables of the integer program for a choice."""
    chosen = np.zeros(len(net.cost))
    chosen[net.start[:-1] + choice] = 1.0
    taken = np.zeros(len(net.edge_cost))
    taken[net.edge_start[:-1] + choice[net.u] * np.diff(net.start)[net.v] + choice[net.v]] = 1.0
    return np.concatenate([chosen, taken[np.isfinite(net.edge_cost)]])
