"""What most kinds of decision do: tile many values, store many arrays in parts, or keep many values whole.

tile_each(p, [w0, w1, w2], 1, "model")     tile<w0, 1>, propagate, tile<w2, 1>, propagate     w1 was inferred by then
store_each(facts, p, [w0, w1], "data")     tile<w0, 0>, tile<w1, 1>               w1 holds stacked layers on its dim 0
keep_each(p, [w0, w1, w2], "model")        atomic<w0>, atomic<w2>                             w1 was tiled before
"""

from __future__ import annotations

import numpy as np

from autopart.core.table.actions import Action, Atomic, Propagate
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.facts import ProgramFacts

FIRST_DIVISIBLE = -1
"""As a dim: the first dim of the value that the axis divides."""


def tile_each(partitioning: Partitioning, values: np.ndarray, dim: int, axis: str) -> list[Action]:
    """Tiles each value on `dim` and propagates, in turn, where that is still legal; returns the actions."""
    dims = np.full(len(values), dim, np.int32)
    actions: list[Action] = []
    for tile in partitioning.tile_in_turn(values.astype(np.int32), dims, axis):
        actions += [tile, Propagate(axis)]
    return actions


def store_each(facts: ProgramFacts, partitioning: Partitioning, values: np.ndarray, axis: str) -> list[Action]:
    """Tiles each array on its first dim that the axis divides, but for dims of stacked layers; returns the actions.

    A loop that walks along a dim takes one slice of it a trip, so that a tile of it would be gathered whole before.
    """
    dims, stored = np.full(len(values), FIRST_DIVISIBLE, np.int32), np.ones(len(values), np.bool_)
    for place, value in enumerate(values.tolist() if facts.walked_dims else ()):
        shape = facts.program.type_of(value).shape
        walked = facts.walked_dims.get(shape)
        if walked:
            legal = (d for d in range(len(shape)) if d not in walked and not partitioning.why_not_tile(value, d, axis))
            dims[place] = next(legal, FIRST_DIVISIBLE)
            stored[place] = dims[place] != FIRST_DIVISIBLE
    values, dims = values[stored], dims[stored]
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
