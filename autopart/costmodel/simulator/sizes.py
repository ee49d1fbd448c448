"""Bytes and elements of an array on one device, with the layout tiles that it takes in memory.

    f32[4096,1024] in [{"batch"},{}] on 16 devices    262,144 elements, 1 MiB      looked up from then on

A program of many layers has few distinct arrays on a device, so each (type, layout) is worked out once and kept in a
`SizeTable`, which belongs to one simulator. Arrays of one type are told apart by the dims that lie outside their tiles.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.layout import LAST_TILE, action_of
from autopart.costmodel.compiled.layouts import tile_dims, tiled_elements
from autopart.costmodel.simulator.arrays import ProgramArrays

LANES_BIT = 1 << 16
"""Shifted by a dim: that dim lies along the lanes, beside a bit for each dim outside the tiles. Where several dims have
one, they lie as the one dim that they were (`feature_groups.py`)."""

ALONE_BIT = LANES_BIT >> 1
"""Beside the bits of dims outside the tiles: where one dim alone lies inside, it lies along the lanes."""

SHORT_BIT = ALONE_BIT >> 1
"""Beside `ALONE_BIT`: only where a device holds fewer of that dim than fill the lanes; else it lies as any array."""

TABLE_ROWS = 2048
"""Rows of a `SizeTable`, a power of two: a table that is half full is emptied. So many stay in a core's cache."""

SIZE_FIELDS = np.dtype(
    [
        ("layout", np.uint64), ("order", np.uint64), ("in_bytes", np.float64), ("row_bytes", np.float64),
        ("elements", np.float64),
        ("size_id", np.int32),
    ],
    align=True,
)  # fmt: skip


class SizeTable(NamedTuple):
    """A hash table with open addressing from (size id, layout) to sizes.

    sizes   layout, size_id (-1: the row is empty), in_bytes, elements; row_bytes: if its rows lie side by side
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
    held = in_rows = plain
    if layout_tile[1] > 1 and rank > 0 and plain > 0:
        if rank > 1:
            in_rows = _padded(dims, rank - 1, rank - 2, plain, element_bytes, layout_tile[0], layout_tile[1])
        lane, second = tile_dims(known.sizes.order[row], rank, dims)
        held = tiled_elements(dims, rank, lane, second, layout_tile[0], layout_tile[1], element_bytes)
        if rank == 1:
            in_rows = held
    known.sizes.in_bytes[row], known.sizes.row_bytes[row] = held * element_bytes, in_rows * element_bytes


def size_ids(type_id: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """int32[values]: equal where types and the dims outside their tiles are."""
    ids, marked = type_id.astype(np.int32), outer > 0
    both = type_id[marked].astype(np.int64) << 32 | outer[marked]
    ids[marked] = ids.max(initial=0) + 1 + np.unique(both, return_inverse=True)[1].reshape(-1)
    return ids


@kernel
def _joined(dims: np.ndarray, rank: int, outer: int) -> int:
    """Puts dims that lie as one into the first of them; returns `outer` without their bits."""
    lanes, first = outer // LANES_BIT, -1
    if lanes & (lanes - 1) == 0:
        return outer
    for d in range(rank):
        if lanes >> d & 1 and first < 0:
            first = d
        elif lanes >> d & 1:
            dims[first], dims[d] = dims[first] * dims[d], 1.0
    return outer % LANES_BIT


@kernel
def padded_elements(dims: np.ndarray, rank: int, element_bytes: float, rows: int, minor: int, outer: int) -> float:
    """Elements an array takes in tiles of `rows` 4-byte rows by `minor` columns, minor dims chosen to waste least.

    Its dims are the first `rank` of `dims`. Rows below a full tile are padded to a power of two, as the TPU compiler
    does. Tiles are not along dims of which `outer` has a bit, where two others have more than one element; the dim of
    which it has `LANES_BIT` is the minor one, if it has more than one element; so is the only other one, if it has
    `ALONE_BIT`, and if it has `SHORT_BIT` where it is shorter than `minor`.
    """
    lanes, alone, short, plain = outer // LANES_BIT, outer & ALONE_BIT, outer & SHORT_BIT, 1.0
    outer %= SHORT_BIT
    for d in range(rank):
        plain *= dims[d]
        if lanes == 1 << d and dims[d] == 1:
            lanes = 0
    if rank == 1:
        return np.ceil(plain / minor) * minor
    inner = 0
    for d in range(rank):
        if not outer >> d & 1 and dims[d] > 1:
            inner += 1
            lanes = 1 << d if alone and inner == 1 and not (short and dims[d] >= minor) else lanes
    if inner > 1:
        lanes = 0 if alone else lanes
    else:
        outer = 0
    best = np.inf
    for a in range(rank):
        for b in range(rank):
            if a != b and (lanes == 0 or lanes == 1 << a) and not outer >> a & 1 and not outer >> b & 1:
                best = min(best, _padded(dims, a, b, plain, element_bytes, rows, minor))
    return best


@kernel
def _padded(dims: np.ndarray, a: int, b: int, plain: float, element_bytes: float, rows: int, minor: int) -> float:
    """Elements with dim `a` along the columns of the tiles and dim `b` along their rows."""
    full_rows = rows * max(1.0, 4.0 / element_bytes)
    tile = 1.0
    while tile < dims[b] and tile < full_rows:
        tile *= 2
    return plain / (dims[a] * dims[b]) * np.ceil(dims[a] / minor) * minor * np.ceil(dims[b] / tile) * tile


def held_elements(shape: tuple[int, ...], element_bytes: float, layout_tile: tuple[int, int]) -> float:
    """Elements that an array of `shape` takes in memory; a `layout_tile` of (1, 1) means no padding."""
    rows, minor = layout_tile
    dims = [n for n in shape if n != 1]
    if minor == 1 or not dims or 0 in dims:
        return float(math.prod(shape))
    return float(padded_elements(np.array(dims, np.float64), len(dims), element_bytes, rows, minor, 0))
