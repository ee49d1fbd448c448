"""The layout behind an op of what lies so before it, by groups of dims."""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.tiled_layouts import LAST_PLACE, dim_at, joined, placed


@kernel
def through(
    layout: np.uint64, rank: int, to_rank: int, groups: np.ndarray, to_groups: np.ndarray
) -> tuple[np.uint64, bool]:
    """The layout behind an op of what lies so before it; 0 where dims of one group do not lie together.

    Dims without a group are the major ones. Dims that lie along the lanes as one still do if they stay the minor ones,
    in their order. The second is True if most dims have no group, as where a vector is spread.
    """
    found, place, at, given = np.uint64(0), 0, 0, 0
    before = joined(layout, rank)
    beside, in_order = 0, True
    while at < rank:
        d = dim_at(layout, at)
        group = groups[d]
        if group < 0:
            in_order = in_order and at > before
            at += 1
            continue
        last, start = d, place
        while at + 1 < rank and groups[dim_at(layout, at + 1)] == group:
            at += 1
            if dim_at(layout, at) > last:
                return np.uint64(0), False
            last = dim_at(layout, at)
        for other in range(d + 1, rank):
            if groups[other] == group:
                return np.uint64(0), False
        for other in range(0, last):
            if groups[other] == group:
                return np.uint64(0), False
        for e in range(to_rank - 1, -1, -1):
            if to_groups[e] == group:
                found |= placed(place, e)
                place += 1
                given += 1
        if place > start and (start == 0 or (in_order and at <= before and start == beside + 1)):
            beside = place - 1
        at += 1
    for e in range(to_rank - 1, -1, -1):
        if to_groups[e] < 0 or not has(groups, rank, to_groups[e]):
            found |= placed(place, e)
            place += 1
    if in_order and to_rank <= LAST_PLACE:
        found |= placed(LAST_PLACE, beside)
    return found, 2 * given < to_rank


@kernel
def has(groups: np.ndarray, rank: int, group: int) -> bool:
    """Whether a dim is of the group."""
    found = False
    for d in range(rank):
        found = found or groups[d] == group
    return found
