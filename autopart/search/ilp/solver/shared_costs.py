"""Costs that several edges have in common: parts of each that add up to 1, raised with the bound of messages.

    a cost of 3 s, had once if any of two edges takes it       half on each: 1.5 s and 1.5 s
    left on the first edge after a sweep 0 s, on the other 2   2.5 s on the first, 0.5 s on the other: 1 s left on both

After each sweep (`dual.py`), what is left on the edges is levelled: the edge that is nearest to its least gets most. No
edge's least cost falls by that, so that the bound of messages never does.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from autopart.core.kernels import allocating_kernel, kernel
from autopart.search.ilp.solver.dual import Messages, no_messages, sweep
from autopart.search.ilp.solver.network import Network
from autopart.search.ilp.solver.pairwise_problem import Floats, Ints

ROUNDS, LOOKED_AT, STALLED = 300, 20, 1e-3
"""Sweeps at most; after every so many, the next are made if these raised the bound by at least the last share."""


class Shared(NamedTuple):
    """Edges from one node of S strategies to R others, with costs of T kinds in common; for kernels.

    - edge: int64[R], of the network
    - from_u: bool[R], the node is the first of the edge
    - strategies: int64[R], of the other node
    - start: int64[R + 1], where the rows of an edge begin in the two arrays below: [S, strategies] of each
    - whole: float64[start[R]], what is had in common
    - kind: int64[start[R]], with the entries of the same kind in the other edges
    - parts: float64[R, S, T], the part that is put down to the edge
    """

    edge: Ints
    from_u: np.ndarray
    strategies: Ints
    start: Ints
    whole: Floats
    kind: Ints
    parts: Floats


def raise_parts(net: Network, sharing: list[Shared], until: float) -> None:
    """Sweeps of messages, and parts that follow them, until the time `until` or as long as the bound rises.

    Changes the parts, and the costs of the network's edges by them.
    """
    messages, before = no_messages(net), -np.inf
    for turn in range(1, ROUNDS + 1):
        sweep(net, messages, True)
        bound = sweep(net, messages, False)
        for shared in sharing:
            level(net, messages, shared)
        if time.monotonic() > until or (turn % LOOKED_AT == 0 and bound - before < STALLED * abs(bound)):
            return
        before = bound if turn % LOOKED_AT == 0 else before


@allocating_kernel
def level(net: Network, messages: Messages, shared: Shared) -> None:
    """Gives each edge as much of what is in common as it lacks of the highest level that all can reach, by what is left
    on them; the messages are those after a sweep backwards."""
    edges, rows, kinds = shared.parts.shape
    least, common = np.empty((edges, kinds)), np.empty((edges, kinds))
    for s in range(rows):
        least[:], common[:] = np.inf, 0.0
        for r in range(edges):
            e, width = shared.edge[r], shared.strategies[r]
            to_u, to_v = messages.to_u[net.u_start[e] :], messages.to_v[net.v_start[e] :]
            for k in range(width):
                at = shared.start[r] + s * width + k
                t, whole = shared.kind[at], shared.whole[at]
                if 0 < whole < np.inf:
                    i, j = (s, k) if shared.from_u[r] else (k, s)
                    columns = width if shared.from_u[r] else rows
                    over = net.edge_cost[net.edge_start[e] + i * columns + j] - to_u[i] - to_v[j]
                    least[r, t], common[r, t] = min(least[r, t], over), whole
        for t in range(kinds):
            _level(least[:, t] - shared.parts[:, s, t] * common[:, t], common[:, t], shared.parts[:, s, t])
        for r in range(edges):
            e, width = shared.edge[r], shared.strategies[r]
            for k in range(width):
                at = shared.start[r] + s * width + k
                if 0 < shared.whole[at] < np.inf:
                    i, j = (s, k) if shared.from_u[r] else (k, s)
                    columns = width if shared.from_u[r] else rows
                    net.edge_cost[net.edge_start[e] + i * columns + j] += common[r, shared.kind[at]]


@kernel
def _level(without: np.ndarray, whole: np.ndarray, parts: np.ndarray) -> None:
    """New parts float64[R] of `whole` float64[R], so that the least of without + parts * whole is greatest; `whole`
    becomes what each edge has more than before. An edge with nothing in common has no part."""
    highest, rises = np.inf, True
    while rises:
        level, per, rises = 1.0, 0.0, False
        for r in range(len(parts)):
            if whole[r] > 0 and without[r] < highest:
                level += without[r] / whole[r]
                per += 1.0 / whole[r]
        if per == 0.0:
            break
        for r in range(len(parts)):
            rises |= whole[r] > 0 and level / per < without[r] < highest
        highest = level / per
    for r in range(len(parts)):
        part = max(0.0, highest - without[r]) / whole[r] if whole[r] > 0 else 0.0
        whole[r] *= part - parts[r]
        parts[r] = part
