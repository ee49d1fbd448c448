"""A layout: in which order the dims of an array lie in memory, packed into 64 bits.

    f32[16,2048,128] {2,0,1}     128 along the lanes of layout tiles, 16 along their rows, 2048 outermost
                                 nibbles from the lowest: 2, 0, 1

As XLA writes it, minor to major. The two minor dims that are longer than one fill layout tiles of the
device, (8, 128) on a TPU, and are padded to whole ones.

    f32[8,16,16,20,16]    a reshape of f32[8,16,16,320]: 20 and 16 lie along the lanes as the one dim that they were

So many dims more than one lie along the lanes says the nibble of place 15 (of arrays of fewer than 16 dims).
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel

NIBBLE = 4
"""Bits of a place: an array has at most 16 dims."""

LAST_PLACE = 15
ONE_LANE = np.uint64((1 << NIBBLE * LAST_PLACE) - 1)
"""The bits of a layout without those that say how many dims lie along the lanes."""


LEAST_ROWS = 2.0
"""Rows of a tile, at least, that has a register of its own."""

MOST_REGISTERS = 3.0
"""XLA:TPU lays some arrays of one or two rows out anew: fitted on norms of images, libtpu 0.0.51 on v5e and v3."""


@kernel
def dim_at(layout: np.uint64, place: int) -> int:
    """The dim that is `place`-th, counted from the minor one."""
    return np.int64((layout >> np.uint64(NIBBLE * place)) & np.uint64(15))


@kernel
def placed(place: int, dim: int) -> np.uint64:
    """The bits of a dim at a place."""
    return np.uint64(dim) << np.uint64(NIBBLE * place)


@kernel
def row_major(rank: int) -> np.uint64:
    """The last dim minor, the first one major."""
    layout = np.uint64(0)
    for place in range(rank):
        layout |= placed(place, rank - 1 - place)
    return layout


@kernel
def joined(layout: np.uint64, rank: int) -> int:
    """How many dims more than one lie along the lanes as one."""
    return dim_at(layout, LAST_PLACE) if rank <= LAST_PLACE else 0


@kernel
def tile_dims(layout: np.uint64, rank: int, dims: np.ndarray) -> tuple[int, int]:
    """The dims along the lanes and along the rows of layout tiles: the two minor ones longer than one; -1 for none.

    Dims that lie along the lanes as one are put into the first of them in `dims`.
    """
    lane = row = -1
    for place in range(1, joined(layout, rank) + 1):
        dims[dim_at(layout, 0)] *= dims[dim_at(layout, place)]
        dims[dim_at(layout, place)] = 1.0
    for place in range(rank):
        d = dim_at(layout, place)
        if dims[d] != 1.0:
            if lane >= 0:
                return lane, d
            lane = d
    return lane, row


@kernel
def tiled_elements(
    dims: np.ndarray, rank: int, lane: int, row: int, rows: int, lanes: int, element_bytes: float
) -> float:
    """Elements that an array takes in whole tiles of `rows` 4-byte words by `lanes`, its dims `lane` and `row` inside.

    Rows of fewer than a tile's are padded to a power of two (XLA's compact 2nd-minor tiling).
    """
    plain = 1.0
    for d in range(rank):
        plain *= dims[d]
    if lane < 0 or plain == 0.0:
        return plain
    padded = plain / dims[lane] * np.ceil(dims[lane] / lanes) * lanes
    if row < 0:
        return padded
    full, tile = rows * max(1.0, 4.0 / element_bytes), 1.0
    while tile < dims[row] and tile < full:
        tile *= 2
    return padded / dims[row] * np.ceil(dims[row] / tile) * tile


@kernel
def registers_over_tiles(size: float, rows: int) -> float:
    """How many registers of `rows` rows kernels walk through, over what tiles of so few rows as `size` would fill.

    A tile of 2 or 4 rows has a register of its own: 4 images along rows take as long as 8, at most thrice as long.
    """
    return min(MOST_REGISTERS, max(1.0, rows / max(LEAST_ROWS, 2.0 ** np.ceil(np.log2(size)))))


def text(layout: int, rank: int) -> str:
    """As HLO writes it.

    >>> text(0x102, 3)
    '{2,0,1}'
    """
    return "{" + ",".join(str(layout >> NIBBLE * place & 15) for place in range(rank)) + "}"
