"""What a reduce_scatter copies that leaves less than whole layout tiles: it takes its dim out of them.

    %t = transpose %g            f32[64,512,8,64], 512 along the lanes
    %s = reduce_scatter %t       f32[64,32,8,64]: 32 of 128 lanes, so %t is copied with 512 outside, and 64 along the
                                 lanes: 67 MB read and 134 MB written, 636 us on v3; of shards of 128 nothing is

Products of two matrices write either order, and are asked for the one that fits; of products along batch dims the
matrix stays as it pads least. Found with libtpu 0.0.51 on v3 and v5e, in attention whose keys are divided.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.layout import LAST_TILE, action_of
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.local.few_images import filled_lanes, local_length

PASSES = 1.3
"""How often the bytes read and written pass at HBM's rate: 1.14 to 1.33 times in 6 copies."""


@kernel
def scattered_bytes(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int) -> float:
    """Bytes that pass at HBM's rate as a value is copied for the reduce_scatter that follows its op; 0 for none."""
    native, settled, dim = lowered.native[value], lowered.settled[value], -1
    for axis in range(lowered.axis_sizes.shape[0]):
        action = action_of(settled, axis)
        if 0 < action <= LAST_TILE and action_of(native, axis) > LAST_TILE:
            dim = action - 1
    if dim < 0 or not program.values.matrix_dims[value] >> dim & 1:
        return 0.0
    other = 0
    while other == dim or not program.values.matrix_dims[value] >> other & 1:
        other += 1
    long = local_length(program, lowered, value, native, dim)
    short = local_length(program, lowered, value, native, other)
    along = _padded(long, short, lowered.layout_tile[0])
    across = _padded(short, long, lowered.layout_tile[0])
    in_lanes = along < across or (along == across and dim > other)
    shard = local_length(program, lowered, value, settled, dim)
    if shard % (lowered.layout_tile[1] if in_lanes else lowered.layout_tile[0]) == 0.0:
        return 0.0
    plain = held.values.native_elements[value] * program.values.element_bytes[value]
    return PASSES * (held.values.native_bytes[value] + plain * filled_lanes(short))


@kernel
def _padded(lanes: float, rows: float, sublanes: int) -> float:
    """Elements that a matrix takes with one dim along the lanes."""
    return lanes * filled_lanes(lanes) * np.ceil(rows / sublanes) * sublanes
