"""The two things that most kinds of decision do: tile many values, or keep many values whole.

tile_each(p, [w0, w1, w2], 1, "model")     tile<w0, 1>, propagate, tile<w2, 1>, propagate     w1 was inferred by then
keep_each(p, [w0, w1, w2], "model")        atomic<w0>, atomic<w2>                             w1 was tiled before
"""

from __future__ import annotations

import numpy as np

from autopart.core.actions import Action, Atomic, Propagate
from autopart.core.partitioning import Partitioning

FIRST_DIVISIBLE = -1
"""As a dim: the first dim of the value that the axis divides."""


def tile_each(partitioning: Partitioning, values: np.ndarray, dim: int, axis: str) -> list[Action]:
    """Tiles each value on `dim` and propagates, in turn, where that is still legal; returns the actions."""
    dims = np.full(len(values), dim, np.int32)
    actions: list[Action] = []
    for tile in partitioning.tile_in_turn(values.astype(np.int32), dims, axis):
        actions += [tile, Propagate(axis)]
    return actions


def keep_each(partitioning: Partitioning, values: np.ndarray, axis: str) -> list[Action]:
    """Keeps each value whole along `axis` where nothing has been decided about it; returns the actions."""
    index, actions = partitioning.mesh.index(axis), []
    for value in values.tolist():
        if partitioning.state.action[value, index] == 0 and partitioning.tiled_dim(value, axis) < 0:
            actions.append(Atomic(value, axis))
            partitioning.apply(actions[-1])
    return actions
