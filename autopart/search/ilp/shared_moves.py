"""What each use pays of a move that several may share: any parts that add up to 1, so those that raise the bound most.

    %h waits as (0, 0), read by a product forward and by another backward, each at half of every move
    the cheapest choice    forward reads (1, 0), backward (0, 2): two half moves, of which no program makes half
    parts by target        (1, 0) all on forward, (0, 2) all on backward: two whole moves; one where both read (1, 0)

Uses in one scope share a move between the same two labels and no other (`spmd/placement.py`). So for each label in
which a value waits, and each to which it is moved, the parts of its uses may differ: whatever they are, no choice pays
more than its moves cost. They are raised with the messages of the dual bound (`solver/dual.py`): after each sweep, what
is left between two labels is levelled among the uses, so that the use whose cheapest pair of strategies is nearest to
the least gets most. No edge's least cost falls by that, so that the bound of messages never does.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autopart.core.kernels import allocating_kernel, kernel
from autopart.search.ilp.formulation import Flow, Move
from autopart.search.ilp.labels import Label, is_pending
from autopart.search.ilp.prices import moved_to
from autopart.search.ilp.sharding_model import Model
from autopart.search.ilp.solver.dual import Messages, no_messages, sweep
from autopart.search.ilp.solver.network import Network, finite_network

ROUNDS, LOOKED_AT, STALLED = 300, 20, 1e-3
"""Sweeps at most; after every so many, the next are made if these raised the bound by at least the last share."""


class Sharers(NamedTuple):
    """R uses that may share moves of a value that waits in one of S labels, to T labels; arrays for kernels.

    - edge: int64[R], the edge of the network between the value and the use
    - from_u: bool[R], the value is the first node of that edge
    - strategies: int64[R], of the op of the use
    - start: int64[R + 1], where the use's rows begin in the two arrays below: [S, strategies] of each
    - seconds: float64[start[R]], of the whole move, as often as it is made
    - target: int64[start[R]], the label to which the value is moved
    - parts: float64[R, S, T], the part of the move that is put down to the use
    """

    edge: np.ndarray
    from_u: np.ndarray
    strategies: np.ndarray
    start: np.ndarray
    seconds: np.ndarray
    target: np.ndarray
    parts: np.ndarray


def share_moves(model: Model, seconds: float) -> None:
    """Gives the model's flow the parts of shared moves that raise its bound, in about so many seconds."""
    until, flow = time.monotonic() + seconds, model.flow
    net, edges = finite_network(replace(model.least(), usage_limit=None))
    together = _together(flow)
    moving = [[move for move in moves if _ends(move) in edges] for moves in together]
    sharing = [_sharers(model, net, edges, moves) for moves in moving if moves]
    if sharing:
        _raise(net._replace(edge_cost=net.edge_cost.copy()), sharing, until)
    flow.weights.update((move, 0.0) for moves in together for move in moves if _ends(move) not in edges)
    for moves, sharers in zip(filter(None, moving), sharing, strict=True):
        for r, move in enumerate(moves):
            target = sharers.target[sharers.start[r] : sharers.start[r + 1]].reshape(-1, sharers.strategies[r])
            parts = np.take_along_axis(sharers.parts[r], target, axis=1)
            flow.weights[move] = parts * (flow.sharing[move.sharing] / flow.moves[move])


def _raise(net: Network, sharing: list[Sharers], until: float) -> None:
    """Sweeps of messages, and parts that follow them, as long as the bound rises; changes the network's edges."""
    messages, before = no_messages(net), -np.inf
    for turn in range(1, ROUNDS + 1):
        sweep(net, messages, True)
        bound = sweep(net, messages, False)
        for sharers in sharing:
            level(net, messages, sharers)
        if time.monotonic() > until or (turn % LOOKED_AT == 0 and bound - before < STALLED * abs(bound)):
            return
        before = bound if turn % LOOKED_AT == 0 else before


def _together(flow: Flow) -> list[list[Move]]:
    """The moves that may be shared, with those that may share them."""
    found: dict[int, list[Move]] = defaultdict(list)
    for move in flow.moves:
        if move.sharing >= 0:
            found[move.sharing].append(move)
    return list(found.values())


def _ends(move: Move) -> tuple[int, int]:
    return min(move.maker, move.reader), max(move.maker, move.reader)


def _sharers(model: Model, net: Network, edges: dict[tuple[int, int], int], moves: list[Move]) -> Sharers:
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
    return Sharers(
        edge,
        net.u[edge] == moves[0].maker,
        np.array([into.shape[1] for into in target], np.int64),
        np.concatenate([[0], np.cumsum([into.size for into in target])]).astype(np.int64),
        np.concatenate([each.ravel() for each in seconds]),
        np.concatenate([into.ravel() for into in target]),
        np.array(parts),
    )


@allocating_kernel
def level(net: Network, messages: Messages, sharers: Sharers) -> None:
    """Moves what is left on the edges of uses among them, by changing their parts: as much to each as its edge lacks
    of the highest level that all can reach. The messages are those after a sweep backwards."""
    uses, waits, targets = sharers.parts.shape
    least, whole = np.empty((uses, targets)), np.empty((uses, targets))
    for s in range(waits):
        least[:], whole[:] = np.inf, 0.0
        for r in range(uses):
            e, width = sharers.edge[r], sharers.strategies[r]
            to_u, to_v = messages.to_u[net.u_start[e] :], messages.to_v[net.v_start[e] :]
            for k in range(width):
                row = sharers.start[r] + s * width + k
                t, seconds = sharers.target[row], sharers.seconds[row]
                if 0 < seconds < np.inf:
                    i, j = (s, k) if sharers.from_u[r] else (k, s)
                    columns = width if sharers.from_u[r] else waits
                    over = net.edge_cost[net.edge_start[e] + i * columns + j] - to_u[i] - to_v[j]
                    least[r, t], whole[r, t] = min(least[r, t], over), seconds
        for t in range(targets):
            _level(least[:, t] - sharers.parts[:, s, t] * whole[:, t], whole[:, t], sharers.parts[:, s, t])
        for r in range(uses):
            e, width = sharers.edge[r], sharers.strategies[r]
            for k in range(width):
                row = sharers.start[r] + s * width + k
                if 0 < sharers.seconds[row] < np.inf:
                    i, j = (s, k) if sharers.from_u[r] else (k, s)
                    columns = width if sharers.from_u[r] else waits
                    net.edge_cost[net.edge_start[e] + i * columns + j] += whole[r, sharers.target[row]]


@kernel
def _level(without: np.ndarray, whole: np.ndarray, parts: np.ndarray) -> None:
    """New parts float64[R] of a move of `whole` float64[R] seconds, so that the least of without + parts * whole is
    greatest; `whole` becomes what each use pays more than before. A use without seconds pays nothing."""
    highest, rises = np.inf, True
    while rises:
        level_s, per_s, rises = 1.0, 0.0, False
        for r in range(len(parts)):
            if whole[r] > 0 and without[r] < highest:
                level_s += without[r] / whole[r]
                per_s += 1.0 / whole[r]
        if per_s == 0.0:
            break
        for r in range(len(parts)):
            rises |= whole[r] > 0 and level_s / per_s < without[r] < highest
        highest = level_s / per_s
    for r in range(len(parts)):
        part = max(0.0, highest - without[r]) / whole[r] if whole[r] > 0 else 0.0
        whole[r] *= part - parts[r]
        parts[r] = part
