"""Layout assignment: a layout for each value of a device-local program.

    %g = dot %x, %dy         f32[64,16,768]     written as the update wants it, whose other operand is an argument
    %w' = subtract %w, %g    {1,0}

Constraints go forward from ops to what is computed of their results, then backward to what was free to choose, as
XLA's pass does: a constraint of higher priority wins. Where a use meets another layout than it asks for, an array is
copied (`copies.py`).
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import View
from autopart.core.program import Program
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.layout_assignment.copies import copied_elements
from autopart.costmodel.compiled.layout_assignment.layout_constraints import (
    ASKED,
    GIVEN,
    LEFT,
    UNASKED,
    WHOLE_RANK,
    WRITTEN,
    Ops,
    Scratch,
    ShardedValues,
    default_layout,
    least_padded,
    local_dims,
    taken_elements,
)
from autopart.costmodel.compiled.layout_assignment.layout_through import has, through
from autopart.costmodel.compiled.layout_assignment.local_kinds import has_one_index, local_kind
from autopart.costmodel.compiled.layout_assignment.product_operands import written_twice
from autopart.costmodel.compiled.layout_assignment.transfers import (
    ANCHORED,
    CARRIED,
    FLEXIBLE,
    FOLLOWS,
    FREE,
    GIVEN_BY_CALLER,
    STRICT,
    Transfers,
    transfers,
)
from autopart.costmodel.compiled.tiled_layouts import (
    LAST_PLACE,
    ONE_LANE,
    dim_at,
    placed,
    row_major,
    tile_dims,
)
from autopart.spmd.for_xla.table_gradients import table_gradients

WORTH_TURNING = 0.8
"""A product writes its result in another order than row-major where that takes at most this share of the bytes."""

WORTH_ROWS = 0.97
"""The same for the order of its rows, where what it reads has another."""

WORTH_LAYING_ANEW = 0.4
"""The same for a part of an array, or what parts are joined to, that would lie as these do."""

ALL_DIMS = (1 << WHOLE_RANK) - 1


class Assigned(NamedTuple):
    """What the pass finds.

    layout        uint64[values]: of each value where its op leaves it (`tiled_layouts.py`)
    priority      int8[values]: of the constraint by which it is so
    along_lanes   bool[ops]: it spreads what it reads along the lanes of its result
    looks_up      bool[ops]: a gather at several indices of a device
    copied, kept, left   of uses, values and ops, as `copied_elements` fills them in
    twice         float64[ops]: elements of a result that is written in a second order (`written_twice`)
    """

    layout: np.ndarray
    priority: np.ndarray
    along_lanes: np.ndarray
    looks_up: np.ndarray
    copied: np.ndarray
    kept: np.ndarray
    left: np.ndarray
    twice: np.ndarray


@kernel
def assign_layouts(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    found: Assigned,
) -> None:
    """Fills in `found`."""
    layout = found.layout
    for value in range(layout.shape[0]):
        layout[value], scratch.priority[value], scratch.asked[value] = row_major(values.rank[value]), UNASKED, 0
    if ops.ended.shape[0] > 0:
        _read_asked(ops, by, scratch)
        _all_forward(ops, values, by, tile, scratch, layout, False)
    _all_forward(ops, values, by, tile, scratch, layout, True)
    for value in range(layout.shape[0]):
        if scratch.priority[value] == UNASKED and values.rank[value] > 1:
            layout[value] = _as_written(values, value, tile, scratch)[0]
    for op in range(ops.op_spec.shape[0] - 1, -1, -1):
        _backward(ops, values, by, tile, scratch, layout, op)
    for op in range(ops.op_spec.shape[0]):
        kind = local_kind(ops, values, by, scratch, op)
        if kind == FOLLOWS:
            _follow(ops, values, by, tile, scratch, layout, op)
        elif kind == FLEXIBLE:
            _write_rows(ops, values, by, tile, scratch, layout, op)
    for op in range(ops.op_spec.shape[0]):
        spec = ops.op_spec[op]
        gathers = by.counted[spec] != 0 and not by.updates[spec]
        found.looks_up[op] = gathers and not has_one_index(ops, values, by, scratch, op)
        found.along_lanes[op] = by.kind[spec] == FREE and _spreads(ops, values, by, scratch, layout, op)
    copied_elements(ops, values, by, tile, scratch, layout, found.copied, found.kept, found.left)


@kernel
def _all_forward(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    again: bool,
) -> None:
    """Goes over the program once. What a loop carries has a layout where its body ends, for all that comes after; what
    is begun by a loop around it only when that is known, `again`."""
    over = 0
    for op in range(ops.op_spec.shape[0] + 1):
        while over < ops.ended.shape[0] and ops.ends[over] == op:
            _carry(ops, values, by, tile, scratch, layout, again, ops.ended[over])
            over += 1
        if op < ops.op_spec.shape[0]:
            _forward(ops, values, by, tile, scratch, layout, op)


@kernel
def _read_asked(ops: Ops, by: Transfers, scratch: Scratch) -> None:
    """Fills in `asked` of what products along batch dims and convolutions read."""
    for op in range(ops.op_spec.shape[0]):
        spec, start = ops.op_spec[op], ops.operand_ptr[op]
        for use in range(start, ops.operand_ptr[op + 1] if by.kind[spec] == STRICT else start):
            value = ops.operands[use]
            scratch.asked[value] = scratch.asked[value] or by.asked[by.first[spec] + use - start]


@kernel
def _carry(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    again: bool,
    op: int,
) -> None:
    """The layout of the next value, which the body has chosen; that of the first where it has not, or where a product
    that makes the whole of it may write in any order.

    What a product reads right there lies as that asks, whatever it is made of: constraints go from op to op, the
    nearest comes first.
    """
    inside, start = ops.result_ptr[op], ops.operand_ptr[op]
    if scratch.priority[inside] != UNASKED:
        return
    begun = ops.operands[start]
    read = ops.operands[start + 1]
    asked = scratch.asked[inside] or scratch.asked[read]
    if asked:
        last = np.int64(values.rank[read]) - 1
        layout[read], scratch.priority[read] = least_padded(values, read, asked, last, tile, scratch), GIVEN
    is_free = scratch.priority[read] == WRITTEN and not by.updates[ops.op_spec[ops.maker[read]]]
    if scratch.priority[read] == UNASKED or (is_free and not (again and scratch.priority[begun] == UNASKED)):
        read = begun
    if scratch.priority[read] == UNASKED:
        return
    for value in range(inside, inside + 2):
        layout[value], scratch.priority[value] = layout[read], GIVEN


@kernel
def _spreads(ops: Ops, values: ShardedValues, by: Transfers, scratch: Scratch, layout: np.ndarray, op: int) -> bool:
    """True if the dim along the lanes of the result is none of the operand's."""
    start = ops.operand_ptr[op]
    if start == ops.operand_ptr[op + 1] or values.rank[ops.operands[start]] == 0:
        return False
    value, row = ops.result_ptr[op], by.first[ops.op_spec[op]]
    rank = local_dims(values, value, scratch.dims)
    lane, _ = tile_dims(layout[value], rank, scratch.dims)
    return lane >= 0 and not has(by.of_operand[row], WHOLE_RANK, by.of_result[row, lane])


@kernel
def _forward(
    ops: Ops, values: ShardedValues, by: Transfers, tile: tuple[int, int], scratch: Scratch, layout: np.ndarray, op: int
) -> None:
    spec, first, kind = ops.op_spec[op], ops.result_ptr[op], local_kind(ops, values, by, scratch, op)
    if first == ops.result_ptr[op + 1] or kind in (FREE, CARRIED):
        return
    if values.as_stored[first]:
        layout[first], scratch.priority[first] = default_layout(values, first, tile, scratch), GIVEN
    elif kind == STRICT:
        layout[first] = least_padded(values, first, by.inner[spec], by.lane[spec], tile, scratch)
        scratch.priority[first] = LEFT if by.is_convolution[spec] else ASKED
    elif kind == FLEXIBLE:
        layout[first], scratch.priority[first] = _as_written(values, first, tile, scratch)
    elif kind == GIVEN_BY_CALLER:
        layout[first], scratch.priority[first] = default_layout(values, first, tile, scratch), GIVEN
    elif kind == ANCHORED:
        for value in range(first, ops.result_ptr[op + 1]):
            if not by.by_rows[spec]:
                layout[value] = _as_written(values, value, tile, scratch)[0]
            scratch.priority[value] = GIVEN
    else:
        _follow(ops, values, by, tile, scratch, layout, op)


@kernel
def _follow(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    op: int,
) -> None:
    """The layout of the operand that is constrained most."""
    first, start, row = ops.result_ptr[op], ops.operand_ptr[op], by.first[ops.op_spec[op]]
    best = -1
    for use in range(start, ops.operand_ptr[op + 1]):
        value = ops.operands[use]
        more = best < 0 or scratch.priority[value] > scratch.priority[ops.operands[best]]
        if more and values.rank[value] > 0:
            best = use
    if best < 0:
        return
    read, at = ops.operands[best], row + best - start
    for value in range(first, ops.result_ptr[op + 1]):
        if values.rank[value] != values.rank[first] or scratch.priority[value] >= max(scratch.priority[read], LEFT):
            continue
        if by.same[at]:
            layout[value], scratch.priority[value] = layout[read], scratch.priority[read]
        else:
            found, is_free = through(
                layout[read], values.rank[read], values.rank[value], by.of_operand[at], by.of_result[at]
            )
            if found != 0 or values.rank[value] <= 1:
                layout[value] = found
                scratch.priority[value] = UNASKED if is_free else scratch.priority[read]
        if not by.moved[at] and values.rank[value] > 1:
            if values.rank[value] <= LAST_PLACE:
                layout[value] &= ONE_LANE
            _relay(values, value, tile, scratch, layout)


@kernel
def _relay(values: ShardedValues, value: int, tile: tuple[int, int], scratch: Scratch, layout: np.ndarray) -> None:
    """Lays a part, or what parts are joined to, anew where it fills few lanes as it lies."""
    least, rank = default_layout(values, value, tile, scratch), np.int64(values.rank[value])
    taken = taken_elements(layout[value], rank, scratch.dims, tile, values.element_bytes[value])
    if taken_elements(least, rank, scratch.dims, tile, values.element_bytes[value]) <= WORTH_LAYING_ANEW * taken:
        layout[value], scratch.priority[value] = least, LEFT


@kernel
def _write_rows(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    op: int,
) -> None:
    """Lets a product that may write any way write its rows as it reads them, where that pads less."""
    first, read, row = ops.result_ptr[op], ops.operands[ops.operand_ptr[op]], by.first[ops.op_spec[op]]
    if scratch.priority[first] == WRITTEN and scratch.priority[read] == ASKED:
        rows = _rows_as(layout[read], values.rank[read], values.rank[first], by.of_operand[row], by.of_result[row])
        if _is_worth_it(values, first, rows, WORTH_ROWS, tile, scratch):
            layout[first], scratch.priority[first] = rows, ASKED


@kernel
def _rows_as(layout: np.uint64, rank: int, to_rank: int, groups: np.ndarray, to_groups: np.ndarray) -> np.uint64:
    """What a product sums over, or its columns, as the minor dims, then rows in the order that `layout` has."""
    found, place = np.uint64(0), 0
    for e in range(to_rank - 1, -1, -1):
        if to_groups[e] < 0:
            found |= placed(place, e)
            place += 1
    for at in range(rank):
        group = groups[dim_at(layout, at)]
        for e in range(to_rank if group >= 0 else 0):
            if to_groups[e] == group:
                found |= placed(place, e)
                place += 1
    return found


@kernel
def _as_written(values: ShardedValues, value: int, tile: tuple[int, int], scratch: Scratch) -> tuple[np.uint64, int]:
    """How a product without batch dims writes its result by itself, or a kernel of its own, and the priority of that.

    Row-major, unless that pads much: then the fewest minor dims that contain an order which pads little.
    """
    rank, least = np.int64(values.rank[value]), least_padded(values, value, ALL_DIMS, -1, tile, scratch)
    if not _is_worth_it(values, value, least, WORTH_TURNING, tile, scratch):
        return row_major(rank), WRITTEN
    bytes_ = taken_elements(least, rank, scratch.dims, tile, values.element_bytes[value])
    for outermost in range(rank - 2, -1, -1):
        found = least_padded(values, value, ALL_DIMS - (1 << outermost) + 1, -1, tile, scratch)
        if WORTH_TURNING * taken_elements(found, rank, scratch.dims, tile, values.element_bytes[value]) <= bytes_:
            return found, ASKED
    return least, ASKED


@kernel
def _is_worth_it(
    values: ShardedValues, value: int, layout: np.uint64, share: float, tile: tuple[int, int], scratch: Scratch
) -> bool:
    """True if a value takes at most this share of the bytes that it takes row-major."""
    rank = local_dims(values, value, scratch.dims)
    taken = taken_elements(layout, rank, scratch.dims, tile, values.element_bytes[value])
    return taken <= share * taken_elements(row_major(rank), rank, scratch.dims, tile, values.element_bytes[value])


@kernel
def _backward(
    ops: Ops,
    values: ShardedValues,
    by: Transfers,
    tile: tuple[int, int],
    scratch: Scratch,
    layout: np.ndarray,
    op: int,
) -> None:
    """Hands what an op asks for to operands that are constrained less, and may be written otherwise."""
    first, spec, start = ops.result_ptr[op], ops.op_spec[op], ops.operand_ptr[op]
    if by.kind[spec] == FLEXIBLE and scratch.priority[first] == ASKED:
        value, row = ops.operands[start], by.first[spec]
        if scratch.priority[value] < GIVEN:
            rows = _rows_as(
                layout[first], values.rank[first], values.rank[value], by.of_result[row], by.of_operand[row]
            )
            if _is_worth_it(values, value, rows, WORTH_ROWS, tile, scratch):
                layout[value], scratch.priority[value] = rows, ASKED
        return
    if by.kind[spec] == STRICT:
        for use in range(start, ops.operand_ptr[op + 1]):
            value, asked = ops.operands[use], by.asked[by.first[spec] + use - start]
            if asked and scratch.priority[value] < GIVEN:
                layout[value] = least_padded(values, value, asked, 0, tile, scratch)
                scratch.priority[value] = ASKED
        return
    kind = local_kind(ops, values, by, scratch, op)
    if first == ops.result_ptr[op + 1] or (kind != FOLLOWS and kind != CARRIED):
        return
    for use in range(start, ops.operand_ptr[op + 1]):
        value, at = ops.operands[use], by.first[spec] + use - start
        if scratch.priority[value] >= min(scratch.priority[first], GIVEN) or values.rank[value] < 2:
            continue
        if not by.moved[at] and not by.same[at]:
            continue
        if by.same[at]:
            layout[value], scratch.priority[value] = layout[first], scratch.priority[first]
            continue
        found, is_free = through(
            layout[first], values.rank[first], values.rank[value], by.of_result[at], by.of_operand[at]
        )
        if found != 0 and not is_free:
            layout[value], scratch.priority[value] = found, scratch.priority[first]


@dataclass(frozen=True, eq=False)
class LayoutAssignment:
    """The pass over one program, whose constraints are worked out once."""

    ops: Ops
    by: Transfers
    shape: np.ndarray
    rank: np.ndarray
    element_bytes: np.ndarray
    as_stored: np.ndarray
    is_view: np.ndarray
    scratch: Scratch

    @staticmethod
    def of(program: Program) -> LayoutAssignment:
        """That over `program`."""
        as_stored = np.zeros(program.value_count, np.bool_)
        as_stored[table_gradients(program)] = True
        return LayoutAssignment(
            Ops.of(program), transfers(program.specs), program.value_shape, program.value_rank,
            program.element_bytes, as_stored,
            np.array([isinstance(traits_of(spec), View) for spec in program.specs], np.bool_),
            Scratch.of(program.value_count),
        )  # fmt: skip

    def __call__(
        self,
        native: np.ndarray,
        axis_sizes: np.ndarray,
        tile: tuple[int, int],
        by_library: bool = False,
        empty: Empty = np.empty,
    ) -> Assigned:
        """The layouts of a device that holds values as `native` says; without layout tiles none is anything.

        `by_library` says whether a library computes products: what it makes write twice is all that is found then.
        """
        ops, values = len(self.ops.op_spec), len(native)
        found = Assigned(
            empty(values, np.uint64), self.scratch.priority, empty(ops, np.bool_), empty(ops, np.bool_),
            empty(len(self.ops.operands)), empty(values, np.bool_), empty(ops), empty(ops),
        )  # fmt: skip
        sharded = ShardedValues(self.shape, self.rank, self.element_bytes, native, axis_sizes, self.as_stored)
        found.twice[:] = 0.0
        if tile[1] == 1:
            if by_library:
                written_twice(
                    self.ops, sharded, self.by, self.is_view, self.scratch, found.layout, empty(values, np.int32),
                    empty(values, np.int32), empty(values, np.bool_), found.kept, found.twice,
                )  # fmt: skip
            else:
                found.kept[:], found.priority[:] = False, UNASKED
            for array in (found.layout, found.along_lanes, found.looks_up, found.copied, found.left):
                array[:] = 0
            return found
        assign_layouts(self.ops, sharded, self.by, tile, self.scratch, found)
        return found
