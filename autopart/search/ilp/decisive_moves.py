"""Which moves decide a bound: those that a cheapest choice makes, and those that a nearly cheapest one could.

    choice    (1, 0) -> (0, 2) of %y     at the table's price, which some sequence of collectives has: 0.4 ms
    asked     3.1 ms as it is lowered    the cheapest choice is another now, with other moves, which are asked for next
    in the end every move of a cheapest choice has the price of its own plan

There are many pairs of labels, and a bound rises only by the prices of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autopart.search.ilp.formulation import Move
from autopart.search.ilp.labels import is_pending
from autopart.search.ilp.lowered_moves import LeastMove
from autopart.search.ilp.prices import moved_to
from autopart.search.ilp.sharding_model import Model
from autopart.search.ilp.solver import PairwiseProblem
from autopart.search.ilp.solver.ascent import Ascent
from autopart.search.ilp.solver.network import Network, finite_network, network
from autopart.search.ilp.solver.reduction import reduced

NEAR, NEARLY = 3e-5, 1e-3
"""A pair of strategies that raises the least cost by at most the first share of it is nearly cheapest. Where there are
such pairs, those up to the second share are asked for with them, as far as there is room."""

TOGETHER = 4_000
"""So many of the nearest pairs of strategies are asked for at a time; many of them make the same move."""

MANY = 100
"""So many new moves of a cheapest choice are asked for before those of nearly cheapest ones."""

CLIMB, GUESS = 10, 1.05
"""Steps of the messages before a choice is read off them, and what its cost is taken to be over the bound."""


def decisive_moves(model: Model) -> list[LeastMove]:
    """The moves between unlike labels that have no price of a plan yet, and decide the bound: those of a cheapest
    choice, and where most of these are known, those of nearly cheapest ones, the nearest first."""
    least = replace(model.least(), usage_limit=None)
    taken = model.flow.taken_least(_cheap_choice(least).tolist())
    found = dict.fromkeys(move for move in taken if move not in model.table.planned and _is_legal(move))
    if len(found) < MANY:
        found.update(dict.fromkeys(_nearly_taken(model, least)))
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


def _nearly_taken(model: Model, least: PairwiseProblem) -> Iterator[LeastMove]:
    """The moves of nearly cheapest pairs of strategies, by what messages leave on each edge and at its ends."""
    net, edge = finite_network(least)
    ascent = Ascent(net)
    flow, near = model.flow, list[_Near]()
    for move in flow.moves:
        u, v = sorted((move.maker, move.reader))
        if (u, v) in edge:
            over = _over_least(net, ascent, edge[u, v])
            near.append(_near(model, move, over if u == move.maker else over.T, NEARLY * abs(ascent.bound)))
    over = np.sort(np.concatenate([each.over for each in near])) if near else np.zeros(0)
    if not len(over) or over[0] > NEAR * abs(ascent.bound):
        return
    most = over[min(TOGETHER, len(over)) - 1]
    for move, *pairs, over in near:
        left, read = flow.left(move), flow.read(move)
        for i, j in np.column_stack(pairs)[over <= most].tolist():
            yield flow.types[move.type_row], left[i], moved_to(left[i], read[j], move.stands), move.least


class _Near(NamedTuple):
    """Pairs of strategies of a move's maker and reader, and how much dearer than the least each is."""

    move: Move
    maker: np.ndarray
    reader: np.ndarray
    over: np.ndarray


def _near(model: Model, move: Move, over: np.ndarray, most: float) -> _Near:
    """The pairs up to so much over the least whose move has no price of a plan."""
    flow, asked = model.flow, over <= most
    if asked.any():
        type_, left, read = flow.types[move.type_row], flow.left(move), flow.read(move)
        asked &= model.table.unplanned(type_, left, read, move.least, move.stands)
    maker, reader = np.nonzero(asked)
    return _Near(move, maker, reader, over[maker, reader])


def _over_least(net: Network, ascent: Ascent, e: int) -> np.ndarray:
    """float64[strategies of u, of v]: how much dearer than the least each pair is, on the edge and at its ends."""
    u, v, sent = int(net.u[e]), int(net.v[e]), ascent.messages
    at_u, at_v = (sent.theta[net.start[n] : net.start[n + 1]] for n in (u, v))
    cost = net.edge_cost[net.edge_start[e] : net.edge_start[e + 1]].reshape(len(at_u), len(at_v))
    to_u, to_v = sent.to_u[net.u_start[e] : net.u_start[e + 1]], sent.to_v[net.v_start[e] : net.v_start[e + 1]]
    left = cost - to_u[:, None] - to_v[None, :]
    return left - left.min() + (at_u - at_u.min())[:, None] + (at_v - at_v.min())[None, :]
