"""The least latency of what collectives do along mesh axes, however a lowering cuts the axes into parts; and the most.

    all_gather over an axis of 16, 4 x 4 chips      at once: 6 hops
                                                    by parts of 2: 4 steps of a hop at least
    all_permute over all 16                         3 hops: no less

What every device along an axis has to hear of passes along all parts of the axis: their sizes multiply to the axis's.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from autopart.costmodel.compiled.links.collective_seconds import collective_s, saved_s
from autopart.costmodel.compiled.links.redistribution_seconds import group_segments
from autopart.costmodel.hardware.fabric import ALL_GATHER, ALL_PERMUTE, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from autopart.costmodel.hardware.links import Links

FEW_BYTES = 1e-6
"""So few that they take no time."""

MOST_GROUPS = 2000
"""Ways to choose parts of all axes; of a mesh with more nothing is known."""


@lru_cache(maxsize=64)
def least_latencies(links: Links) -> np.ndarray:
    """float64[masks of axes]: seconds of hearing from all devices along these axes; at 0, of any collective.

    An all_reduce is two such passes.
    """
    sizes, names = links.mesh.axis_sizes, links.mesh.axis_names
    parts = [[n for n in range(1, size + 1) if size % n == 0] for size in sizes]
    found = np.zeros(1 << len(sizes))
    if np.prod([len(of) for of in parts]) > MOST_GROUPS:
        return found
    of_part: dict[tuple[int, int], float] = {}
    for group in itertools.product(*parts):
        if max(group) > 1:
            least = _pass_s(links, tuple((name, n) for name, n in zip(names, group, strict=True) if n > 1))
            for axis, n in enumerate(group):
                of_part[axis, n] = min(least, of_part.get((axis, n), np.inf))
    found[0] = min((least for (_, n), least in of_part.items() if n > 1), default=0.0)
    along = [
        _cheapest_cover(size, {n: of_part[axis, n] for n in parts[axis] if n > 1}) for axis, size in enumerate(sizes)
    ]
    for mask in range(1, len(found)):
        found[mask] = max(least for axis, least in enumerate(along) if mask >> axis & 1)
    return found


def _pass_s(links: Links, axes: tuple[tuple[str, int], ...]) -> float:
    """The least latency of a collective over parts of axes, an all_reduce counted as two."""
    segments, mask = group_segments(links, axes)
    passes = {ALL_GATHER: 1, REDUCE_SCATTER: 1, ALL_TO_ALL: 1, ALL_PERMUTE: 1, ALL_REDUCE: 2}
    return min(
        float(collective_s(kind, FEW_BYTES, mask, segments, links.fabrics, links.curves)) / times
        for kind, times in passes.items()
    )


def _cheapest_cover(size: int, of_part: dict[int, float]) -> float:
    """The least sum over parts whose sizes multiply to `size` at least."""
    best = [0.0, 0.0] + [np.inf] * (size - 1)
    for n in range(2, size + 1):
        best[n] = min(least + best[-(-n // part)] for part, least in of_part.items())
    return best[size]


@lru_cache(maxsize=64)
def most_saved_s(links: Links) -> float:
    """What a gather saves at most by being combined with others, over whatever axes: one that fills a batch.

    Those that are made all_reduces of the whole save at most the latency of one.
    """
    masks, device = range(1, 1 << len(links.mesh.axis_sizes)), links.device
    kind, full = (ALL_GATHER, device.combine_bytes) if device.is_xla_gpu else (ALL_REDUCE, 1.0)
    wires = links.segments, links.fabrics, links.curves
    return max(float(saved_s(kind, full, device.combine_bytes, mask, *wires)) for mask in masks)
