"""What a plan does to the tiles of an array, by NumPy and by the meaning of types alone: no StableHLO, no jax."""

from __future__ import annotations

import numpy as np

from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM
from autopart.spmd.emission.emitter import replica_groups, source_target_pairs
from autopart.spmd.redistribution import DistributedType, Plan, Step

COMBINE = {SUM: np.add, MAX: np.maximum, MIN: np.minimum, MUL: np.multiply, AND: np.logical_and, OR: np.logical_or}


def tiles_of(array: np.ndarray, kind: DistributedType) -> list[np.ndarray]:
    """What each device holds."""
    return [
        array[tuple(slice(o, o + n) for o, n in zip(offset, kind.local_shape, strict=True))]
        for offset in kind.base_offsets().tolist()
    ]


def run(plan: Plan, array: np.ndarray) -> list[np.ndarray]:
    """The tiles after the plan, for a source without pending reductions."""
    tiles = tiles_of(array, plan.source)
    for step in plan.steps:
        tiles = follow(step, tiles)
    return tiles


def follow(step: Step, tiles: list[np.ndarray]) -> list[np.ndarray]:
    """One step; checks that every byte comes from a device of the same group."""
    if step.kind == "all_permute":
        after: list = [None] * len(tiles)
        for giver, taker in source_target_pairs(step).tolist():
            assert after[taker] is None
            after[taker] = tiles[giver]
        return after
    groups = replica_groups(step.target, step.axes)
    if step.kind == "all_slice":
        groups = np.arange(len(tiles))[:, None]
    before, wanted = step.view.base_offsets(), step.target.base_offsets()
    after = [None] * len(tiles)
    for group in groups.tolist():
        if step.code:
            whole = tiles[group[0]]
            for device in group[1:]:
                whole = COMBINE[step.code](whole, tiles[device])
            reduced = {group[0]: whole}
        for device in group:
            tile = np.empty(step.target.local_shape, tiles[device].dtype)
            filled = np.zeros(step.target.local_shape, bool)
            for other in group:
                source = reduced.get(other) if step.code else tiles[other]
                if source is not None:
                    _copy(tile, filled, wanted[device], source, before[other])
            assert filled.all(), f"{step.text()}: device {device} misses a part of its tile"
            after[device] = tile
    return after


def _copy(tile, filled, tile_start, source, source_start) -> None:
    first = np.maximum(tile_start, source_start)
    last = np.minimum(tile_start + tile.shape, source_start + source.shape)
    if (first < last).all():
        to = tuple(slice(a, b) for a, b in zip(first - tile_start, last - tile_start, strict=True))
        frm = tuple(slice(a, b) for a, b in zip(first - source_start, last - source_start, strict=True))
        tile[to] = source[frm]
        filled[to] = True
