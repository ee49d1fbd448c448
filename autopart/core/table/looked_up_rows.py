"""Look-ups in tiled rows by indices that nobody tiled: shuffles, resampling, minibatches of a replay buffer.

%rows [{B},{}]    %order [{}]
%x = gather %rows %order     loop "B" over %rows: a sum, of which all is read; all behind it is computed everywhere
-> tile<%x, 0, "B">          reduce_scatter %x; what reads it is divided
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.op import WHOLE
from autopart.core.table.actions import Tile
from autopart.core.table.partitioning import Partitioning

MOST_IN_TURN = 8
"""Look-ups in what was looked up that are followed, one behind the other."""


def tile_looked_up(partitioning: Partitioning, axis: str) -> list[Tile]:
    """Tiles what is looked up along an axis, and what is looked up in that; returns the actions."""
    found: list[Tile] = []
    for _ in range(MOST_IN_TURN):
        rows = list(looked_up(partitioning, axis))
        values, dims = np.array(rows, np.int32).reshape(-1, 2).T
        tiled = partitioning.tile_in_turn(values, dims, axis) if rows else []
        if not tiled:
            break
        found += tiled
    return found


def looked_up(partitioning: Partitioning, axis: str) -> Iterator[tuple[int, int]]:
    """(value, dim) of look-ups that leave a sum along the axis, and whose indices are whole: the first dim of theirs
    that it divides."""
    program, index = partitioning.program, partitioning.mesh.index(axis)
    looks_up = partitioning.table.arrays.looks_up
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
