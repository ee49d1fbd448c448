"""Every ordered layout of a small mesh of prime axes, and the cheapest way between any two of them.

    node   (per dim a tuple of axes, major first; axes with a sum pending)
    edge   slice, gather over any dims, all_to_all of any axes between any dims, permute; reduce_scatter, all_reduce

This knows nothing of normal forms, weak types or over-partitioning: it is Floyd-Warshall on the whole graph, once per
bound on the height.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from autopart.spmd.redistribution import CollectiveCost, Elements

PrimeLayout = tuple[tuple[str, ...], ...]
Node = tuple[PrimeLayout, frozenset[str]]


def layouts(sizes: dict[str, int], rank: int, shape: tuple[int, ...] | None = None) -> list[PrimeLayout]:
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


def with_pending(sizes: dict[str, int], layout: PrimeLayout) -> list[Node]:
    """The layout with a sum pending on every subset of the axes that it does not use."""
    spare = [a for a in sizes if not any(a in dim for dim in layout)]
    subsets = itertools.chain.from_iterable(itertools.combinations(spare, n) for n in range(len(spare) + 1))
    return [(layout, frozenset(s)) for s in subsets]


FIGURE_11 = Elements()


def cheapest(sizes: dict[str, int], nodes: list[Node], elements: int, cost: CollectiveCost = FIGURE_11) -> np.ndarray:
    """cost[i, j]: the least cost (4-byte elements) from node i to node j, no local size above the larger of theirs."""
    local = np.array([elements // math.prod(sizes[a] for dim in n for a in dim) for n, _ in nodes])
    direct = np.full((len(nodes), len(nodes)), np.inf)
    for i, one in enumerate(nodes):
        for j, other in enumerate(nodes):
            before, after = int(local[i]), int(local[j])
            for kind, axes in _edges(sizes, one, other):
                spans = tuple((a, sizes[a]) for a in sizes if a in axes)
                direct[i, j] = min(direct[i, j], cost.step_cost(kind, before, after, 4, spans))
    np.fill_diagonal(direct, 0)
    best = np.full_like(direct, np.inf)
    for bound in sorted(set(local.tolist())):
        inside = local <= bound
        short = np.where(inside[:, None] & inside[None, :], direct, np.inf)
        for k in np.flatnonzero(inside):
            short = np.minimum(short, short[:, k, None] + short[None, k, :])
        at_bound = np.maximum(local[:, None], local[None, :]) == bound
        best[at_bound] = short[at_bound]
    return best


def _edges(sizes: dict[str, int], one: Node, other: Node) -> Iterator[tuple[str, set[str]]]:
    """(kind, axes it spans) of each collective that leads from one node straight to the other."""
    (here, pending), (there, left) = one, other
    dims = list(zip(here, there, strict=True))
    longer = [b[: len(a)] == a for a, b in dims]
    shorter = [a[: len(b)] == b for a, b in dims]
    used, wanted = ({a for dim in n for a in dim} for n in (here, there))
    if pending != left:
        if left < pending and here == there:
            yield "all_reduce", set(pending - left)
        elif left < pending and all(longer) and wanted - used == pending - left:
            yield "reduce_scatter", set(pending - left)
        return
    if all(longer):
        yield "all_slice", wanted - used
    elif all(shorter):
        yield "all_gather", used - wanted
    elif used == wanted and all(a or b for a, b in zip(longer, shorter, strict=True)):
        yield "all_to_all", {axis for a, b in dims for axis in a[len(b) :]}
    if all(math.prod(sizes[x] for x in a) == math.prod(sizes[x] for x in b) for a, b in dims):
        was, is_ = _places(sizes, here), _places(sizes, there)
        yield "all_permute", {a for a in used | wanted if was.get(a) != is_.get(a)}


def _places(sizes: dict[str, int], layout: PrimeLayout) -> dict[str, tuple[int, int]]:
    """Per axis, its dim and into how many parts the axes above it cut the dim."""
    return {a: (d, math.prod(sizes[x] for x in dim[:n])) for d, dim in enumerate(layout) for n, a in enumerate(dim)}
