"""Bytes and elements of an array on one device, with the layout tiles that it takes in memory.

    f32[4096,1024] in [{"batch"},{}] on 16 devices    262,144 elements, 1 MiB      looked up from then on

A program of many layers has few distinct arrays on a device, so each (type, layout) is worked out once and kept in a
`SizeTable`, which belongs to one simulator.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE, action_of
from autopart.costmodel.compiled.arrays import ProgramArrays
from autopart.costmodel.compiled.tiled_layouts import registers_over_tiles, tile_dims, tiled_elements

TABLE_ROWS = 2048
"""Rows of a `SizeTable`, a power of two: a table that is half full is emptied. So many stay in a core's cache."""

SIZE_FIELDS = np.dtype(
    [
        ("layout", np.uint64), ("order", np.uint64), ("in_bytes", np.float64), ("registers", np.float64),
        ("elements", np.float64),
        ("size_id", np.int32),
    ],
    align=True,
)  # fmt: skip


class SizeTable(NamedTuple):
    """A hash table with open addressing from (size id, layout, order in memory) to sizes.

    sizes   layout, size_id (-1: the row is empty), in_bytes, elements; registers: `registers_over_tiles`
    filled  [rows that are not empty]
    dims    scratch: the dims of one array
    """

    sizes: Any
    filled: np.ndarray
    dims: np.ndarray

    @staticmethod
    def empty(most_dims: int) -> SizeTable:
        """A table for arrays of at most so many dims."""
        sizes = np.zeros(TABLE_ROWS, SIZE_FIELDS)
        sizes["size_id"] = -1
        return SizeTable(sizes, np.zeros(1, np.int64), np.ones(most_dims))


@kernel
def size_row(
    program: ProgramArrays,
    known: SizeTable,
    value: int,
    layout: np.uint64,
    order: np.uint64,
    axis_sizes: np.ndarray,
    layout_tile: tuple[int, int],
) -> int:
    """The row of `known` with the size of a value in a layout, which is filled in if it is new.

    Rows are good until the next call. A `layout_tile` of (1, 1) means no padding.
    """
    size_id, last = program.values.size_id[value], known.sizes.shape[0] - 1
    mixed = (layout + order * np.uint64(0xD6E8FEB86659FD93) + np.uint64(size_id + 1)) * np.uint64(0x9E3779B97F4A7C15)
    row = np.int64(mixed >> np.uint64(40)) & last
    while known.sizes.size_id[row] >= 0:
        if (
            known.sizes.size_id[row] == size_id
            and known.sizes.layout[row] == layout
            and known.sizes.order[row] == order
        ):
            return row
        row = (row + 1) & last
    if 2 * known.filled[0] > last:
        for other in range(last + 1):
            known.sizes.size_id[other] = -1
        known.filled[0] = 0
    known.filled[0] += 1
    known.sizes.size_id[row], known.sizes.layout[row], known.sizes.order[row] = size_id, layout, order
    _work_out(program, known, row, value, axis_sizes, layout_tile)
    return row


@kernel
def _work_out(
    program: ProgramArrays,
    known: SizeTable,
    row: int,
    value: int,
    axis_sizes: np.ndarray,
    layout_tile: tuple[int, int],
) -> None:
    """Fills in bytes and elements of a row of `known`."""
    layout, rank, dims = known.sizes.layout[row], np.int64(program.values.rank[value]), known.dims
    for d in range(rank):
        dims[d] = program.shape[value, d]
    plain, element_bytes = program.values.elements[value], program.values.element_bytes[value]
    for axis in range(axis_sizes.shape[0]):
        action = action_of(layout, axis)
        if 0 < action <= LAST_TILE:
            plain /= axis_sizes[axis]
            dims[action - 1] /= axis_sizes[axis]
    known.sizes.elements[row] = plain
    held, known.sizes.registers[row] = plain, 1.0
    if layout_tile[1] > 1 and rank > 0 and plain > 0:
        lane, second = tile_dims(known.sizes.order[row], rank, dims)
        if second >= 0:
            known.sizes.registers[row] = registers_over_tiles(dims[second], layout_tile[0])
        held = tiled_elements(dims, rank, lane, second, layout_tile[0], layout_tile[1], element_bytes)
    known.sizes.in_bytes[row] = held * element_bytes


@kernel
def padded_elements(dims: np.ndarray, rank: int, element_bytes: float, rows: int, minor: int) -> float:
    """Elements an array takes at least in tiles of `rows` 4-byte rows by `minor` columns, along whichever dims.

    Its dims are the first `rank` of `dims`. Rows below a full tile are padded to a power of two, as the TPU compiler
    does.
    """
    if rank == 1:
        return np.ceil(dims[0] / minor) * minor
    best = np.inf
    for a in range(rank):
        for b in range(rank):
            if a != b:
                best = min(best, tiled_elements(dims, rank, a, b, rows, minor, element_bytes))
    return best


def held_elements(shape: tuple[int, ...], element_bytes: float, layout_tile: tuple[int, int]) -> float:
    """Elements that an array of `shape` takes in memory; a `layout_tile` of (1, 1) means no padding."""
    rows, minor = layout_tile
    dims = [n for n in shape if n != 1]
    if minor == 1 or not dims or 0 in dims:
        return float(math.prod(shape))
    return float(padded_elements(np.array(dims, np.float64), len(dims), element_bytes, rows, minor))
