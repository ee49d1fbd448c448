"""Which moves decide a bound: those that a cheapest choice makes, and those that a nearly cheapest one could.

    choice    (1, 0) -> (0, 2) of %y     at the table's price, which some sequence of collectives has: 0.4 ms
    asked     3.1 ms as it is lowered    the cheapest choice is another now, with other moves, which are asked for next
    in the end every move of a cheapest choice has the price of its own plan

There are many pairs of labels, and a bound rises only by the prices of these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autopart.base.jit.kernels import allocating_kernel
from autopart.pairwise import PairwiseProblem
from autopart.pairwise.ascent import Ascent
from autopart.pairwise.dual import Messages
from autopart.pairwise.network import Network, finite_network, network
from autopart.pairwise.reduction import reduced
from autopart.search.ilp.labels import is_pending
from autopart.search.ilp.lowered_moves import LeastMove
from autopart.search.ilp.sharding_model import Model

NEAR, NEARLY = 3e-5, 3e-3
"""A pair of strategies that raises the least cost by at most the first share of it is nearly cheapest. Where there are
such pairs, the moves of those up to the second share are asked for with them, as far as there is room."""

TOGETHER = 8_000
"""So many of the nearest moves are asked for at a time."""

FEW = 100
"""Where fewer moves are nearly cheapest, those of a cheapest choice are asked for as well."""

CLIMB = 10
"""Steps of the messages before a choice is read off them."""


def decisive_moves(model: Model) -> list[LeastMove]:
    """The moves between unlike labels that have no price of a plan yet, and decide the bound: those of nearly cheapest
    choices, the nearest first; where these are few, those of a cheapest one too."""
    least = replace(model.least(), usage_limit=None)
    found = dict.fromkeys(_nearly_taken(model, least))
    if len(found) < FEW:
        taken = model.flow.taken_least(_cheap_choice(least).tolist())
        found.update(dict.fromkeys(move for move in taken if move not in model.table.planned and _is_legal(move)))
    return list(found)


def _cheap_choice(least: PairwiseProblem) -> np.ndarray:
    """int64[nodes]: a choice that is the cheapest, or nearly, where most of the problem can be eliminated."""
    state = reduced(least)
    if not len(state.nodes):
        return state.restored(np.zeros(0, np.int64))
    ascent = Ascent(network(state.rest(), state.room))
    return state.restored(ascent.climb(CLIMB))


def _is_legal(move: LeastMove) -> bool:
    _, source, target, _ = move
    return not any(is_pending(t) and s != t for s, t in zip(source, target, strict=True))


def _nearly_taken(model: Model, least: PairwiseProblem) -> list[LeastMove]:
    """The moves of nearly cheapest pairs of strategies, by what messages leave on each edge and at its ends."""
    net, edge = finite_network(least)
    ascent, flow, table = Ascent(net), model.flow, model.table
    over, nearest = np.empty(len(net.edge_cost)), np.empty(len(net.u))
    _over_least(net, ascent.messages, over, nearest)
    most, rows, asked = NEARLY * abs(ascent.bound), list[np.ndarray](), list[np.ndarray]()
    for move in flow.moves:
        u, v = sorted((move.maker, move.reader))
        e = edge.get((u, v))
        if e is None or nearest[e] > most:
            continue
        left, read = flow.left(move), flow.read(move)
        ends = (len(left), len(read)) if u == move.maker else (len(read), len(left))
        pairs = over[net.edge_start[e] : net.edge_start[e + 1]].reshape(ends)
        pairs = pairs if u == move.maker else pairs.T
        near = np.nonzero(pairs <= most)
        place = table.unplanned(flow.types[move.type_row], left, read, move.least, move.stands, near)
        asked.append(pairs[near][place >= 0])
        place = place[place >= 0]
        rows.append(np.column_stack([np.full((len(place), 2), (move.type_row, move.least)), place]))
    if not rows or not sum(map(len, rows)):
        return []
    moves, number = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
    by_move = np.full(len(moves), np.inf)
    np.minimum.at(by_move, number.reshape(-1), np.concatenate(asked))
    if by_move.min() > NEAR * abs(ascent.bound):
        return []
    order = np.argsort(by_move, kind="stable")[:TOGETHER]
    return [
        (flow.types[type_row], *table.move_at(flow.types[type_row], place), row)
        for type_row, row, place in moves[order].tolist()
    ]


@allocating_kernel
def _over_least(net: Network, messages: Messages, over: np.ndarray, nearest: np.ndarray) -> None:
    """over float64[entries of all edges]: how much dearer than the least each pair of strategies is, on the edge and at
    its ends; nearest float64[edges]: the least of each edge."""
    for e in range(len(net.u)):
        u, v, begin = net.u[e], net.v[e], net.edge_start[e]
        at_u, at_v = messages.theta[net.start[u] : net.start[u + 1]], messages.theta[net.start[v] : net.start[v + 1]]
        least_u, least_v, least, width = at_u.min(), at_v.min(), np.inf, len(at_v)
        to_u, to_v = messages.to_u[net.u_start[e] :], messages.to_v[net.v_start[e] :]
        for a in range(len(at_u)):
            for b in range(width):
                left = net.edge_cost[begin + a * width + b] - to_u[a] - to_v[b]
                over[begin + a * width + b] = left
                least = min(least, left)
        nearest[e] = np.inf
        for a in range(len(at_u)):
            for b in range(width):
                at = begin + a * width + b
                over[at] = over[at] - least + (at_u[a] - least_u) + (at_v[b] - least_v)
                nearest[e] = min(nearest[e], over[at])
