"""Which moves decide a bound: those that a cheapest choice makes, and those that a nearly cheapest one could.

    choice    (1, 0) -> (0, 2) of %y     at the table's price, which some sequence of collectives has: 0.4 ms
    asked     3.1 ms as it is lowered    the cheapest choice is another now, with other moves, which are asked for next
    in the end every move of a cheapest choice has the price of its own plan

There are many pairs of labels, and a bound rises only by the prices of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from autopart.search.ilp.labels import is_pending
from autopart.search.ilp.lowered_moves import LeastMove
from autopart.search.ilp.prices import moved_to
from autopart.search.ilp.sharding_model import Model
from autopart.search.ilp.solver import PairwiseProblem
from autopart.search.ilp.solver.ascent import Ascent
from autopart.search.ilp.solver.network import Network, network
from autopart.search.ilp.solver.reduction import reduced

NEAR = 3e-5
"""A pair of strategies that raises the least cost by at most this share of it is nearly cheapest."""

MANY = 100
"""So many new moves of a cheapest choice are asked for before those of nearly cheapest ones."""

FORBIDDEN = 2.0
"""What is forbidden costs so many times all else: messages must be finite."""

CLIMB, GUESS = 10, 1.05
"""Steps of the messages before a choice is read off them, and what its cost is taken to be over the bound."""


def decisive_moves(model: Model) -> list[LeastMove]:
    """The moves between unlike labels that have no price of a plan yet, and decide the bound: those of a cheapest
    choice, and where most of these are known, those of nearly cheapest ones, which are fewer the more is known."""
    least = replace(model.least(), usage_limit=None)
    taken = _unknown(model, model.flow.taken_least(_cheap_choice(least).tolist()))
    if len(taken) >= MANY:
        return taken
    return list(dict.fromkeys((*taken, *_unknown(model, _nearly_taken(model, least)))))


def _unknown(model: Model, moves: Iterable[LeastMove]) -> list[LeastMove]:
    return [move for move in moves if move not in model.table.planned and _is_legal(move)]


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


def _nearly_taken(model: Model, least: PairwiseProblem) -> Iterator[LeastMove]:
    """The moves of nearly cheapest pairs of strategies, by what messages leave on each edge and at its ends."""
    legal = np.isfinite(least.edge_cost)
    dearest = FORBIDDEN * (least.edge_cost[legal].max(initial=0.0) + least.cost.max(initial=0.0))
    net = network(replace(least, edge_cost=np.where(legal, least.edge_cost, dearest)), np.ones(1))
    ascent = Ascent(net)
    edge = {(int(u), int(v)): e for e, (u, v) in enumerate(zip(net.u, net.v, strict=True))}
    most = NEAR * abs(ascent.bound)
    for move in model.flow.moves:
        u, v = sorted((move.maker, move.reader))
        if (u, v) not in edge:
            continue
        near = _over_least(net, ascent, edge[u, v]) <= most
        near, left, read = (near if u == move.maker else near.T), model.flow.left(move), model.flow.read(move)
        for i, j in np.argwhere(near).tolist():
            target = moved_to(left[i], read[j], move.stands)
            if left[i] != target:
                yield model.flow.types[move.type_row], left[i], target, move.least


def _over_least(net: Network, ascent: Ascent, e: int) -> np.ndarray:
    """float64[strategies of u, of v]: how much dearer than the least each pair is, on the edge and at its ends."""
    u, v, sent = int(net.u[e]), int(net.v[e]), ascent.messages
    at_u, at_v = (sent.theta[net.start[n] : net.start[n + 1]] for n in (u, v))
    cost = net.edge_cost[net.edge_start[e] : net.edge_start[e + 1]].reshape(len(at_u), len(at_v))
    to_u, to_v = sent.to_u[net.u_start[e] : net.u_start[e + 1]], sent.to_v[net.v_start[e] : net.v_start[e + 1]]
    left = cost - to_u[:, None] - to_v[None, :]
    return left - left.min() + (at_u - at_u.min())[:, None] + (at_v - at_v.min())[None, :]
