"""What each use pays of a move that several may share: any parts that add up to 1, so those that raise the bound most.

    %h waits as (0, 0), read by a product forward and by another backward, each at half of every move
    the cheapest choice    forward reads (1, 0), backward (0, 2): two half moves, of which no program makes half
    parts by target        (1, 0) all on forward, (0, 2) all on backward: two whole moves; one where both read (1, 0)

Uses in one scope share a move between the same two labels and no other (`placement.py`). So for each label in
which a value waits, and each to which it is moved, the parts of its uses may differ: whatever they are, no choice pays
more than its moves cost. Which parts raise the bound most, `solver/shared_costs.py` finds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace

import numpy as np

from autopart.pairwise.network import Network, finite_network
from autopart.pairwise.shared_costs import Shared, raise_parts
from autopart.search.ilp.formulation import Flow, Move
from autopart.search.ilp.labels import Label, is_pending
from autopart.search.ilp.prices import moved_to
from autopart.search.ilp.sharding_model import Model


def share_moves(model: Model, seconds: float) -> None:
    """Gives the model's flow the parts of shared moves that raise its bound, in about so many seconds."""
    until, flow = time.monotonic() + seconds, model.flow
    net, edges = finite_network(replace(model.least(), usage_limit=None))
    together = _together(flow)
    moving = [[move for move in moves if _ends(move) in edges] for moves in together]
    sharing = [_shared(model, net, edges, moves) for moves in moving if moves]
    if sharing:
        raise_parts(net._replace(edge_cost=net.edge_cost.copy()), sharing, until)
    flow.weights.update((move, 0.0) for moves in together for move in moves if _ends(move) not in edges)
    for moves, shared in zip(filter(None, moving), sharing, strict=True):
        for r, move in enumerate(moves):
            target = shared.kind[shared.start[r] : shared.start[r + 1]].reshape(-1, shared.strategies[r])
            parts = np.take_along_axis(shared.parts[r], target, axis=1)
            flow.weights[move] = parts * (flow.sharing[move.sharing] / flow.moves[move])


def _together(flow: Flow) -> list[list[Move]]:
    """The moves that may be shared, with those that may share them."""
    found: dict[int, list[Move]] = defaultdict(list)
    for move in flow.moves:
        if move.sharing >= 0:
            found[move.sharing].append(move)
    return list(found.values())


def _ends(move: Move) -> tuple[int, int]:
    return min(move.maker, move.reader), max(move.maker, move.reader)


def _shared(model: Model, net: Network, edges: dict[tuple[int, int], int], moves: list[Move]) -> Shared:
    """The arrays of moves that may be shared, with the parts that they have now."""
    flow, labels, trips = model.flow, dict[Label, int](), model.flow.sharing[moves[0].sharing]
    left = flow.left(moves[0])
    seconds, target, parts = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for move in moves:
        read = flow.read(move)
        if move.stands and any(any(map(is_pending, label)) for label in read):
            wanted = [[moved_to(source, label, move.stands) for label in read] for source in left]
        else:
            wanted = [list(read)]
        numbers = np.array([[labels.setdefault(label, len(labels)) for label in row] for row in wanted], np.int64)
        target.append(np.broadcast_to(numbers, (len(left), len(read))))
        seconds.append(trips * flow.whole_seconds(move, model.table, least=True))
    for move, into in zip(moves, target, strict=True):
        part = np.zeros((len(left), len(labels)))
        np.put_along_axis(part, into, flow.weights.get(move, 1.0) * np.full(into.shape, flow.moves[move] / trips), 1)
        parts.append(part)
    edge = np.array([edges[_ends(move)] for move in moves], np.int64)
    return Shared(
        edge,
        net.u[edge] == moves[0].maker,
        np.array([into.shape[1] for into in target], np.int64),
        np.concatenate([[0], np.cumsum([into.size for into in target])]).astype(np.int64),
        np.concatenate([each.ravel() for each in seconds]),
        np.concatenate([into.ravel() for into in target]),
        np.array(parts),
    )
