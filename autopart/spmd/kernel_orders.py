"""Gradients of kernels of transposed convolutions are left with their dims in memory in the order of the kernels.

    %dw = convolution %x, %dy      f32[4,4,512,256], of images of 4 x 4 by windows of 8 x 8
    %c  = custom_call @LayoutConstraint(%dw)      256 along the lanes, as %w and its moments have them

The window has more places than the images, so XLA swaps the two and leaves %dw with 512 along the lanes. What is
computed of it follows: XLA:TPU copied the kernel and both moments of Adam into that order and back, 262 of 398 us on a
v3, 87 of 97 us on a v5e. With libtpu 0.0.51 the product leaves either order as fast, 137 us and 79 us in all.

A kernel whose other order pads less is stored so: it stays as it is.
"""

from __future__ import annotations

import math

from autopart.core.jax_internals import ir
from autopart.core.ops.rule import traits_of
from autopart.core.ops.swapped_operands import swaps_operands
from autopart.core.ops.traits import Convolution
from autopart.spmd.device_local import DeviceLocal

ROWS, LANES = 8, 128
"""A layout tile of the TPU compiler."""


def kernels_in_order(local: DeviceLocal) -> frozenset[int]:
    """The gradients of kernels that XLA would leave in another order than it stores the kernels in."""
    program, found = local.program, set[int]()
    swapped = [_is_swapped_gradient(local, spec) for spec in range(len(program.specs))]
    if not any(swapped):
        return frozenset()
    for op, spec in enumerate(program.op_spec.tolist()):
        if swapped[spec]:
            value = program.results_of(op)[0]
            *_, rows, lanes = local.local_type(value, int(local.native[value])).shape
            if _padded(rows, lanes) <= _padded(lanes, rows):
                found.add(value)
    return frozenset(found)


def _is_swapped_gradient(local: DeviceLocal, spec: int) -> bool:
    """True where the features of a kernel are the last two dims of its gradient, and XLA swaps the two operands."""
    op, traits = local.program.specs[spec], traits_of(local.program.specs[spec])
    if not isinstance(traits, Convolution) or not traits.of_kernel(op) or not swaps_operands(op):
        return False
    numbers, rank = op.attributes["dimension_numbers"], len(op.results[0].shape)
    return (numbers["output_batch_dimension"], numbers["output_feature_dimension"]) == (rank - 2, rank - 1)


def _padded(rows: int, lanes: int) -> int:
    return math.ceil(rows / ROWS) * ROWS * math.ceil(lanes / LANES) * LANES


def in_order(value: ir.Value) -> ir.Value:
    """The value with its last dim along the lanes, the one before along the rows, and so on."""
    index = ir.IndexType.get()
    dims = list(reversed(range(ir.RankedTensorType(value.type).rank)))
    order = ir.DenseIntElementsAttr.get(
        [ir.IntegerAttr.get(index, d) for d in dims], type=ir.RankedTensorType.get([len(dims)], index)
    )
    attributes = {
        "call_target_name": ir.StringAttr.get("LayoutConstraint"),
        "operand_layouts": ir.ArrayAttr.get([order]),
        "result_layouts": ir.ArrayAttr.get([order]),
    }
    return ir.Operation.create("stablehlo.custom_call", [value.type], [value], attributes).results[0]
