"""Layouts of one device's arrays by what they pad: the least padded of all, and of those with given dims inside tiles.

f32[100,14,14,64], tiles of (8, 128)    {0,3,2,1}: 100 of 128 along the lanes, 64 along rows     the least padded
                                        {3,0,2,1}: 64 of 128 along the lanes, 100 of 104 along rows
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.layout import LAST_TILE, action_of
from autopart.core.program import Program
from autopart.costmodel.compiled.tiled_layouts import placed, row_major, tile_dims, tiled_elements

WHOLE_RANK = 16

UNASKED, LEFT, WRITTEN, GIVEN, ASKED = range(5)
"""Priorities of constraints: made inside its readers; what a convolution leaves; a product's, which may write in
another order; of arguments and what lies row-major; what convolutions and products along batch dims ask for."""


class ShardedValues(NamedTuple):
    """The arrays of one device, as the pass reads them.

    shape, rank, element_bytes   of whole values; of elements, which bits count as a byte of
    native                       uint64[values]: how each is tiled where its op leaves it
    axis_sizes                   of the mesh
    as_stored                    bool[values]: emitted with a constraint to the layout of the argument that it updates
    """

    shape: np.ndarray
    rank: np.ndarray
    element_bytes: np.ndarray
    native: np.ndarray
    axis_sizes: np.ndarray
    as_stored: np.ndarray


class Ops(NamedTuple):
    """The ops of a program: `result_ptr`, `operand_ptr`, `operands` as in `Program`, and `op_spec`; carries by where
    their loops end, `ended`, and the op before which each does, `ends`; of values, whether each is an output, and its
    maker."""

    result_ptr: np.ndarray
    operand_ptr: np.ndarray
    operands: np.ndarray
    op_spec: np.ndarray
    ended: np.ndarray
    ends: np.ndarray
    is_output: np.ndarray
    maker: np.ndarray

    @staticmethod
    def of(program: Program) -> Ops:
        """Those of `program`."""
        of_body = {op: program.inner_scopes[owner][1] for op, owner in program.owners.items()
                   if program.spec(op).kind == "carry"}  # fmt: skip
        ended = sorted(of_body, key=lambda op: program.scopes[of_body[op]].end)
        is_output = np.zeros(program.value_count, np.bool_)
        is_output[program.outputs] = True
        return Ops(
            program.result_ptr, program.operand_ptr, program.operands, program.op_spec, np.array(ended, np.int32),
            np.array([program.scopes[of_body[op]].end for op in ended], np.int32), is_output, program.value_op,
        )  # fmt: skip


class Scratch(NamedTuple):
    """dims, float64[16]: of one array; priority, int8[values]: of the constraint by which each has its layout;
    asked, int32[values]: a bit for each dim that an op which reads it asks to lie inside tiles; is_copied,
    bool[values]: so far."""

    dims: np.ndarray
    priority: np.ndarray
    asked: np.ndarray
    is_copied: np.ndarray

    @staticmethod
    def of(values: int) -> Scratch:
        """Room for a program of so many values."""
        return Scratch(
            np.ones(WHOLE_RANK), np.zeros(values, np.int8), np.zeros(values, np.int32), np.zeros(values, np.bool_)
        )


@kernel
def local_dims(values: ShardedValues, value: int, dims: np.ndarray) -> int:
    """Fills in the dims of a value on one device; returns how many there are."""
    rank, tiled = np.int64(values.rank[value]), values.native[value]
    for d in range(rank):
        dims[d] = values.shape[value, d]
    for axis in range(values.axis_sizes.shape[0] if tiled else 0):
        action = action_of(tiled, axis)
        if 0 < action <= LAST_TILE:
            dims[action - 1] /= values.axis_sizes[axis]
    return rank


@kernel
def taken_elements(
    layout: np.uint64, rank: int, dims: np.ndarray, tile: tuple[int, int], element_bytes: float
) -> float:
    """Elements that an array of `dims` takes so, in whole tiles."""
    lane, row = tile_dims(layout, rank, dims)
    return tiled_elements(dims, rank, lane, row, tile[0], tile[1], element_bytes)


@kernel
def default_layout(values: ShardedValues, value: int, tile: tuple[int, int], scratch: Scratch) -> np.uint64:
    """The layout of an argument or a result of the program: the one that pads least.

    Of several the one with the last dim along the lanes, then the one with the last dim along the rows.
    """
    rank, least = local_dims(values, value, scratch.dims), np.inf
    minor = second = -1
    for a in range(rank - 1, -1, -1):
        for b in range(rank - 1, -1, -1):
            if a == b or scratch.dims[a] == 1.0 or scratch.dims[b] == 1.0:
                continue
            taken = tiled_elements(scratch.dims, rank, a, b, tile[0], tile[1], values.element_bytes[value])
            if taken < least:
                least, minor, second = taken, a, b
    return row_major(rank) if minor < 0 else with_minor(rank, minor, second)


@kernel
def least_padded(
    values: ShardedValues, value: int, inner: int, lane: int, tile: tuple[int, int], scratch: Scratch
) -> np.uint64:
    """The layout whose two minor dims are of `inner`, in the order that pads least; row-major outside."""
    rank, least = local_dims(values, value, scratch.dims), np.inf
    minor, second = -1, -1
    for a in range(rank - 1, -1, -1):
        for b in range(rank - 1, -1, -1):
            if a == b or not inner >> a & 1 or not inner >> b & 1:
                continue
            taken = tiled_elements(scratch.dims, rank, a, b, tile[0], tile[1], values.element_bytes[value])
            if taken < least or (taken == least and (a == lane or (a < minor and minor != lane))):
                least, minor, second = taken, a, b
    return row_major(rank) if minor < 0 else with_minor(rank, minor, second)


@kernel
def with_minor(rank: int, minor: int, second: int) -> np.uint64:
    """Row-major but for the two minor dims."""
    found, place = placed(0, minor) | placed(1, second), 2
    for d in range(rank - 1, -1, -1):
        if d not in (minor, second):
            found |= placed(place, d)
            place += 1
    return found
