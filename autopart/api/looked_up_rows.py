"""Rows that are looked up in tiled rows, by indices that nobody tiled: shuffles, resampling, minibatches of a replay buffer.

    %rows [{B},{}]    %order [{}]
    %x = gather %rows %order     loop "B" over %rows: a sum, of which all is read; all behind it is computed everywhere
    -> tile<%x, 0, "B">          reduce_scatter %x; what reads it is divided

It is the last step of a schedule, along every axis, since a later tactic may divide otherwise what reads the rows, as
Megatron does behind a look-up of tokens. It is priced, and kept where the step is faster.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autopart.core.actions import Action, Propagate
from autopart.core.layout import LAST_TILE
from autopart.core.op import WHOLE
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Slicing
from autopart.core.partitioning import Partitioning
from autopart.costmodel.estimate import estimate
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.spmd.device_local import LoweringOptions

MOST_IN_TURN = 8
"""Look-ups in what was looked up that are followed, one behind the other."""


def looked_up_rows(partitioning: Partitioning, options: LoweringOptions) -> list[Action]:
    """The actions of that step, which are applied; none where the mesh names no device, so that nothing is priced."""
    taken: list[Action] = []
    for axis in partitioning.mesh.axis_names if partitioning.mesh.device is not None else ():
        if not any(_open(partitioning, axis)):
            continue
        mark, before = partitioning.mark(), _rank(partitioning, options)
        tiles = _followed(partitioning, axis)
        if tiles and _rank(partitioning, options) < before:
            taken += [*tiles, Propagate(axis)]
        elif tiles:
            partitioning.undo(mark)
    return taken


def _rank(partitioning: Partitioning, options: LoweringOptions) -> tuple[bool, float]:
    price = estimate(lower_for_device(partitioning, options), partitioning.mesh)
    return not price.fits, price.step_s


def _followed(partitioning: Partitioning, axis: str) -> list[Action]:
    """Tiles what is looked up along an axis, and what is looked up in that."""
    found: list[Action] = []
    for _ in range(MOST_IN_TURN):
        rows = list(_open(partitioning, axis))
        tiled = partitioning.tile_in_turn(*np.array(rows, np.int32).reshape(-1, 2).T, axis) if rows else []
        if not tiled:
            break
        found += tiled
    return found


def _open(partitioning: Partitioning, axis: str) -> Iterator[tuple[int, int]]:
    """(value, dim) of look-ups that leave a sum along the axis, and whose indices are whole: the first dim of theirs
    that it divides."""
    program, index = partitioning.program, partitioning.mesh.index(axis)
    looks_up = np.array([isinstance(t := traits_of(spec), Slicing) and t.indexed for spec in program.specs], np.bool_)
    loops = partitioning.state.mapping[:, index]
    for op in np.flatnonzero(looks_up[program.op_spec] & (loops >= 0)).tolist():
        mappings = partitioning.table.of[program.op_spec[op]]
        value = int(program.results_of(op)[0])
        if mappings[loops[op]].results[0] <= LAST_TILE or partitioning.tiled_dim(value, axis) >= 0:
            continue
        dims = [m.results[0] for m in mappings if m.operands[0] == WHOLE and m.results[0] < LAST_TILE]
        legal = [dim for dim in dims if not partitioning.why_not_tile(value, dim, axis)]
        if legal:
            yield value, legal[0]
