"""Every ordered layout of a small mesh of prime axes, and the cheapest way between any two of them.

    node   per dim a tuple of axes, major first
    edge   slice, gather over any dims, all_to_all of any axes between any dims, permute

This knows nothing of normal forms, weak types or over-partitioning: it is Floyd-Warshall on the whole graph, once per
bound on the height.
"""

from __future__ import annotations

import itertools
import math

import numpy as np


def layouts(
    sizes: dict[str, int], rank: int, shape: tuple[int, ...] | None = None
) -> list[tuple[tuple[str, ...], ...]]:
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


def cheapest(sizes: dict[str, int], nodes: list, elements: int) -> np.ndarray:
    """cost[i, j]: the least Figure 11 cost from node i to node j with no local size above the larger of theirs."""
    local = np.array([elements // math.prod(sizes[a] for dim in n for a in dim) for n in nodes])
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


def _edge(sizes, one, other, before, after) -> float:
    if one == other:
        return 0
    longer = [b[: len(a)] == a for a, b in zip(one, other, strict=True)]
    shorter = [a[: len(b)] == b for a, b in zip(one, other, strict=True)]
    if all(longer):
        return 0
    if all(shorter):
        return after
    same_axes = {a for dim in one for a in dim} == {a for dim in other for a in dim}
    if same_axes and all(a or b for a, b in zip(longer, shorter, strict=True)):
        return before
    cuts = [tuple(math.prod(sizes[a] for a in dim) for dim in n) for n in (one, other)]
    return before if cuts[0] == cuts[1] else np.inf
