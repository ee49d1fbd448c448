"""Every ordered layout of a small mesh of prime axes, and the cheapest way between any two of them.

    node   (per dim a tuple of axes, major first; axes with a sum pending)
    edge   slice, gather over any dims, all_to_all of any axes between any dims, permute; reduce_scatter, all_reduce

This knows nothing of normal forms, weak types or over-partitioning: it is Floyd-Warshall on the whole graph, once per
bound on the height.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

Layout = tuple[tuple[str, ...], ...]
Node = tuple[Layout, frozenset[str]]


def layouts(sizes: dict[str, int], rank: int, shape: tuple[int, ...] | None = None) -> list[Layout]:
    """All ways to put distinct axes on the dims, in any order; where a shape is given, those that divide it."""
    found = []
    for count in range(len(sizes) + 1):
        for chosen in itertools.permutations(sizes, count):
            for cuts in itertools.combinations_with_replacement(range(count + 1), rank - 1):
                marks = (0, *cuts, count)
                found.append(tuple(chosen[a:b] for a, b in itertools.pairwise(marks)))
    if shape is None:
        return found
    return [
        layout
        for layout in found
        if all(n % math.prod(sizes[a] for a in dim) == 0 for n, dim in zip(shape, layout, strict=True))
    ]


def with_pending(sizes: dict[str, int], layout: Layout) -> list[Node]:
    """The layout with a sum pending on every subset of the axes that it does not use."""
    spare = [a for a in sizes if not any(a in dim for dim in layout)]
    subsets = itertools.chain.from_iterable(itertools.combinations(spare, n) for n in range(len(spare) + 1))
    return [(layout, frozenset(s)) for s in subsets]


def cheapest(sizes: dict[str, int], nodes: list[Node], elements: int) -> np.ndarray:
    """cost[i, j]: the least Figure 11 cost from node i to node j with no local size above the larger of theirs."""
    local = np.array([elements // math.prod(sizes[a] for dim in n for a in dim) for n, _ in nodes])
    direct = np.full((len(nodes), len(nodes)), np.inf)
    for i, one in enumerate(nodes):
        for j, other in enumerate(nodes):
            direct[i, j] = _edge(sizes, one, other, local[i], local[j])
    cost = np.full_like(direct, np.inf)
    for bound in sorted(set(local.tolist())):
        inside = local <= bound
        short = np.where(inside[:, None] & inside[None, :], direct, np.inf)
        for k in np.flatnonzero(inside):
            short = np.minimum(short, short[:, k, None] + short[None, k, :])
        at_bound = np.maximum(local[:, None], local[None, :]) == bound
        cost[at_bound] = short[at_bound]
    return cost


def _edge(sizes: dict[str, int], one: Node, other: Node, before: int, after: int) -> float:
    (here, pending), (there, left) = one, other
    longer = [b[: len(a)] == a for a, b in zip(here, there, strict=True)]
    shorter = [a[: len(b)] == b for a, b in zip(here, there, strict=True)]
    used, wanted = ({a for dim in n for a in dim} for n in (here, there))
    if pending != left:
        if not left < pending:
            return np.inf
        if here == there:
            return 2 * before
        return before if all(longer) and wanted - used == pending - left else np.inf
    if here == there or all(longer):
        return 0
    if all(shorter):
        return after
    if used == wanted and all(a or b for a, b in zip(longer, shorter, strict=True)):
        return before
    cuts = [tuple(math.prod(sizes[a] for a in dim) for dim in n) for n in (here, there)]
    return before if cuts[0] == cuts[1] else np.inf
