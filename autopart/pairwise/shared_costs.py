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

from autopart.base.jit.kernels import kernel
from autopart.pairwise.dual import Messages, no_messages, sweep
from autopart.pairwise.network import Network
from autopart.pairwise.pairwise_problem import Floats, Ints, joined, starts

ROUNDS, LOOKED_AT, STALLED = 300, 20, 1e-3
"""Sweeps at most; after every so many, the next are made if these raised the bound by at least the last share."""


class Shared(NamedTuple):
    """Edges from one node of S strategies to R others, with costs of T kinds in common.

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


class Groups(NamedTuple):
    """Several `Shared` after each other, for kernels; make it with `Groups.of`.

    - first: int64[groups + 1], where the edges of each begin
    - rows, kinds: int64[groups], their S and T
    - part_start: int64[groups + 1], where their parts begin
    - edge to parts: as in `Shared`, of all edges; the parts as one row
    - least, common: float64[most edges, most kinds], scratch of `level`
    """

    first: Ints
    rows: Ints
    kinds: Ints
    part_start: Ints
    edge: Ints
    from_u: np.ndarray
    strategies: Ints
    start: Ints
    whole: Floats
    kind: Ints
    parts: Floats
    least: Floats
    common: Floats

    @staticmethod
    def of(sharing: list[Shared]) -> Groups:
        """At least one."""
        edge, from_u, strategies, _, whole, kind, parts = zip(*sharing, strict=True)
        entries = [np.diff(shared.start) for shared in sharing]
        most = max(map(len, edge)), max(each.shape[2] for each in parts)
        return Groups(
            starts([len(each) for each in edge]),
            np.array([each.shape[1] for each in parts], np.int64),
            np.array([each.shape[2] for each in parts], np.int64),
            starts([each.size for each in parts]),
            np.concatenate(edge),
            np.concatenate(from_u),
            np.concatenate(strategies),
            starts(np.concatenate(entries).tolist()),
            np.concatenate(whole),
            np.concatenate(kind),
            joined([each.ravel() for each in parts]),
            np.empty(most),
            np.empty(most),
        )


def raise_parts(net: Network, sharing: list[Shared], until: float) -> None:
    """Sweeps of messages, and parts that follow them, until the time `until` or as long as the bound rises.

    Changes the parts, and the costs of the network's edges by them.
    """
    messages, groups, before = no_messages(net), Groups.of(sharing), -np.inf
    for turn in range(1, ROUNDS + 1):
        sweep(net, messages, True)
        bound = sweep(net, messages, False)
        level(net, messages, groups)
        if time.monotonic() > until or (turn % LOOKED_AT == 0 and bound - before < STALLED * abs(bound)):
            break
        before = bound if turn % LOOKED_AT == 0 else before
    for shared, begin in zip(sharing, groups.part_start[:-1].tolist(), strict=True):
        shared.parts[:] = groups.parts[begin : begin + shared.parts.size].reshape(shared.parts.shape)


@kernel
def level(net: Network, messages: Messages, groups: Groups) -> None:
    """Gives each edge as much of what is in common as it lacks of the highest level that all can reach, by what is left
    on them; the messages are those after a sweep backwards."""
    for g in range(len(groups.rows)):
        first, last, rows, kinds = groups.first[g], groups.first[g + 1], groups.rows[g], groups.kinds[g]
        for s in range(rows):
            groups.least[: last - first, :kinds], groups.common[: last - first, :kinds] = np.inf, 0.0
            _left_on_edges(net, messages, groups, first, last, rows, s)
            for t in range(kinds):
                part = groups.part_start[g] + s * kinds + t
                parts = groups.parts[part : groups.part_start[g + 1] : rows * kinds]
                _level(groups.least[: last - first, t], groups.common[: last - first, t], parts)
            _add_on_edges(net, groups, first, last, rows, s)


@kernel
def _left_on_edges(net: Network, messages: Messages, groups: Groups, first: int, last: int, rows: int, s: int) -> None:
    """Of each edge where the node that all have takes strategy s: what is left on it for each kind at least, and what
    of the kind they have in common."""
    for r in range(first, last):
        e, width, from_u = groups.edge[r], groups.strategies[r], groups.from_u[r]
        to_u, to_v, begin = net.u_start[e], net.v_start[e], groups.start[r] + s * width
        for k in range(width):
            t, whole = groups.kind[begin + k], groups.whole[begin + k]
            if 0 < whole < np.inf:
                i, j, columns = (s, k, width) if from_u else (k, s, rows)
                cost = net.edge_cost[net.edge_start[e] + i * columns + j]
                over = cost - messages.to_u[to_u + i] - messages.to_v[to_v + j]
                groups.least[r - first, t] = min(groups.least[r - first, t], over)
                groups.common[r - first, t] = whole


@kernel
def _add_on_edges(net: Network, groups: Groups, first: int, last: int, rows: int, s: int) -> None:
    """Puts what each edge has more of each kind than before on its costs."""
    for r in range(first, last):
        e, width, from_u = groups.edge[r], groups.strategies[r], groups.from_u[r]
        begin = groups.start[r] + s * width
        for k in range(width):
            if 0 < groups.whole[begin + k] < np.inf:
                i, j, columns = (s, k, width) if from_u else (k, s, rows)
                net.edge_cost[net.edge_start[e] + i * columns + j] += groups.common[r - first, groups.kind[begin + k]]


@kernel
def _level(least: np.ndarray, whole: np.ndarray, parts: np.ndarray) -> None:
    """New parts float64[R] of `whole` float64[R], so that the least of what is left on the edges, `least` beside the
    parts that they have, is greatest; `whole` becomes what each edge has more than before. An edge with nothing in
    common has no part."""
    highest, rises = np.inf, True
    for r in range(len(parts)):
        least[r] -= parts[r] * whole[r]
    while rises:
        level, per, rises = 1.0, 0.0, False
        for r in range(len(parts)):
            if whole[r] > 0 and least[r] < highest:
                level += least[r] / whole[r]
                per += 1.0 / whole[r]
        if per == 0.0:
            break
        for r in range(len(parts)):
            rises |= whole[r] > 0 and level / per < least[r] < highest
        highest = level / per
    for r in range(len(parts)):
        part = max(0.0, highest - least[r]) / whole[r] if whole[r] > 0 else 0.0
        whole[r] *= part - parts[r]
        parts[r] = part
