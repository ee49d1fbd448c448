"""Copies where a use asks for another layout than its operand has, as layout assignment inserts them.

    %x = argument                 f32[16,224,224,3]{2,1,3,0}     as it is given: a dim of space along the lanes
    %y = convolution %x, %w       asks for features and images inside tiles: a copy, bf16[16,224,224,3]{3,0,2,1}
    %s = dot %q, %k               along batch dims: asks for the two dims of each matrix
    %p = dot %o, %w               the rows that lie inside tiles of %o are those that lie inside tiles of %p
    %r = gather %table, %i        asks for whole rows of the table
    %c = carry %cache, %next      as the body leaves it: the cache is copied where the loop begins, and where it ends

What is spread or filled is made in whatever order its reader has. Source: XLA's `layout_assignment.cc`
(`CopyOperandIfLayoutsDiffer`).
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.layout_assignment.layout_constraints import (
    ASKED,
    UNASKED,
    Ops,
    Scratch,
    ShardedValues,
    default_layout,
    least_padded,
    local_dims,
)
from autopart.costmodel.compiled.layout_assignment.local_kinds import has_one_index
from autopart.costmodel.compiled.layout_assignment.transfers import CARRIED, FLEXIBLE, NO_GROUP, STRICT, Transfers
from autopart.costmodel.compiled.tiled_layouts import row_major, tile_dims, tiled_elements

AS_IT_LIES = 0
"""What a use asks for that reads any layout; else a bit for each dim that may lie inside tiles."""

MOST_FILLED = 16
"""Rows that would take more than so many times their elements stay as they lie."""


@kernel
def copied_elements(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    copied: np.ndarray,
    kept: np.ndarray,
    left: np.ndarray,
) -> None:
    """Fills in elements, padded, of copies, negative where another dim comes along the lanes: copied, float64[uses], of
    the one that is made for a use, 0 for none; left, float64[ops], of what an op leaves by rows; and kept,
    bool[values]: later uses read the copy, too."""
    for value in range(kept.shape[0]):
        scratch.is_copied[value] = kept[value] = False
    for use in range(copied.shape[0]):
        copied[use] = 0.0
    for op in range(ops.op_spec.shape[0]):
        spec, start, left[op] = ops.op_spec[op], ops.operand_ptr[op], 0.0
        first = ops.result_ptr[op]
        if first < ops.result_ptr[op + 1] and values.as_stored[first]:
            left[op] = _in_rows(values, tile, scratch, layout, first)
        by_rows = by.by_rows[spec] and not has_one_index(ops, values, by, scratch, op)
        if by_rows and scratch.priority[ops.operands[start]] != UNASKED:
            copied[start] = _in_rows(values, tile, scratch, layout, ops.operands[start])
            _once(scratch, ops.operands[start], start, copied, kept)
        if by.kind[spec] == CARRIED:
            _copy_at_edges(ops, values, tile, scratch, layout, copied, left, op)
        if by.kind[spec] not in (STRICT, FLEXIBLE):
            continue
        for use in range(start, ops.operand_ptr[op + 1]):
            value, row = ops.operands[use], by.first[spec] + use - start
            asked = by.asked[row]
            if by.kind[spec] == FLEXIBLE:
                if min(scratch.priority[value], scratch.priority[ops.result_ptr[op]]) < ASKED:
                    continue
                asked = _asked_by_rows(values, by, scratch, layout, value, ops.result_ptr[op], row)
            if asked != AS_IT_LIES and not _lies_so(values, scratch, layout, value, asked):
                rank = local_dims(values, value, scratch.dims)
                lane, _ = tile_dims(layout[value], rank, scratch.dims)
                to = least_padded(values, value, asked, lane, tile, scratch)
                copied[use] = _copied(values, tile, scratch, value, layout[value], to)
                _once(scratch, value, use, copied, kept)


@kernel
def _copy_at_edges(
    ops: Ops,
    values: ShardedValues,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    copied: np.ndarray,
    left: np.ndarray,
    op: int,
) -> None:
    """Copies what a loop begins with into the layout in which its body carries it, and an output out of that."""
    start, inside = ops.operand_ptr[op], ops.result_ptr[op]
    begun, after = ops.operands[start], inside + 1
    if scratch.priority[begun] != UNASKED and values.rank[inside] > 1:
        copied[start] = _relaid(values, tile, scratch, begun, layout[begun], layout[inside])
    if ops.is_output[after] and values.rank[inside] > 1:
        default = default_layout(values, after, tile, scratch)
        left[op] = _relaid(values, tile, scratch, after, layout[after], default)


@kernel
def _relaid(
    values: ShardedValues, tile: tuple[int, int], scratch: Scratch, value: int, lies: np.uint64, layout: np.uint64
) -> float:
    """As `_copied`; 0 where the same dims lie inside tiles."""
    rank = local_dims(values, value, scratch.dims)
    same = tile_dims(lies, rank, scratch.dims) == tile_dims(layout, rank, scratch.dims)
    return 0.0 if same else _copied(values, tile, scratch, value, lies, layout)


@kernel
def _once(scratch: Scratch, value: int, use: int, copied: np.ndarray, kept: np.ndarray) -> None:
    if copied[use] != 0.0 and scratch.is_copied[value]:
        copied[use], kept[value] = 0.0, True
    elif copied[use] != 0.0:
        scratch.is_copied[value] = True


@kernel
def _lies_so(values: ShardedValues, scratch: Scratch, layout: np.ndarray, value: int, asked: int) -> bool:
    rank = local_dims(values, value, scratch.dims)
    lane, row = tile_dims(layout[value], rank, scratch.dims)
    return (lane < 0 or asked >> lane & 1 == 1) and (row < 0 or asked >> row & 1 == 1)


@kernel
def _asked_by_rows(
    values: ShardedValues, by: Transfers, scratch: Scratch, layout: np.ndarray, value: int, result: int, at: int
) -> int:
    """What a product asks of an operand: what it sums over, and the dims that lie inside tiles of its result."""
    rank = local_dims(values, result, scratch.dims)
    lane, row = tile_dims(layout[result], rank, scratch.dims)
    asked = 0
    for d in range(values.rank[value]):
        group = by.of_operand[at, d]
        along = (lane >= 0 and group == by.of_result[at, lane]) or (row >= 0 and group == by.of_result[at, row])
        if group == NO_GROUP or along:
            asked |= 1 << d
    return asked


@kernel
def _in_rows(values: ShardedValues, tile: tuple[int, int], scratch: Scratch, layout: np.ndarray, value: int) -> float:
    """Elements of a copy between the layout of a value and rows along the lanes; 0 where it lies so, or stays so."""
    rank = local_dims(values, value, scratch.dims)
    lane, _ = tile_dims(layout[value], rank, scratch.dims)
    asked, _ = tile_dims(row_major(rank), rank, scratch.dims)
    few = asked < 0 or scratch.dims[asked] * MOST_FILLED < tile[1]
    return 0.0 if lane == asked or few else _copied(values, tile, scratch, value, layout[value], row_major(rank))


@kernel
def _copied(
    values: ShardedValues, tile: tuple[int, int], scratch: Scratch, value: int, lies: np.uint64, layout: np.uint64
) -> float:
    """Elements of the larger of an array as it lies and its copy; negative where another dim comes along the lanes."""
    each = values.element_bytes[value]
    rank = local_dims(values, value, scratch.dims)
    lane, row = tile_dims(lies, rank, scratch.dims)
    before = tiled_elements(scratch.dims, rank, lane, row, tile[0], tile[1], each)
    rank = local_dims(values, value, scratch.dims)
    to_lane, to_row = tile_dims(layout, rank, scratch.dims)
    most = max(before, tiled_elements(scratch.dims, rank, to_lane, to_row, tile[0], tile[1], each))
    return most if lane == to_lane else -most
