"""Gradients are left with their dims in memory in the order of the arrays that they update.

    %dw = convolution %x, %dy      f32[4,4,512,256], of images of 4 x 4 by windows of 8 x 8
    %c  = custom_call @LayoutConstraint(%dw)      256 along the lanes, as %w and its moments have them

The window has more places than the images, so XLA swaps the two and leaves %dw with 512 along the lanes. What is
computed of it follows: XLA:TPU copied the kernel and both moments of Adam into that order and back, 262 of 398 us on a
v3, 87 of 97 us on a v5e. With libtpu 0.0.51 the product leaves either order as fast, 137 us and 79 us in all. A kernel
whose other order pads less is stored so: it stays as it is.

    %dt = scatter %zeros, %rows, %dy              f32[200000,16], added to by row: rows lie side by side, of 128 lanes
    %c  = custom_call @LayoutConstraint(%dt)      200,000 along the lanes, as %t is stored

Adagrad takes 1,353 us and 205 MB on a v5e, and 171 us and less than 1 MB behind the constraint, on a v3 2,418 us and
768; with 96 elements in a row 1,907 and 941. Adam, which the compiler keeps in order itself up to 64 elements in a row,
takes 2,988 and 1,174 us with 96. `table_gradients.py` says which these are; of the steps that
`python -m experiments.beside_jit` compiles none takes longer.
"""

from __future__ import annotations

import math

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.swapped_operands import swaps_operands
from autopart.core.ops.traits import Convolution
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.for_xla.memory_orders import Order
from autopart.spmd.for_xla.table_gradients import LANES, table_gradients

ROWS = 8
"""Of a layout tile of the TPU compiler."""


def update_orders(local: DeviceLocal) -> dict[int, Order]:
    """The orders of gradients that XLA would leave in another order than it stores the arrays in that they update."""
    program, found = local.program, dict[int, Order]()
    for value in table_gradients(program):
        rows, lanes = local.local_type(value, int(local.settled[value])).shape
        if _padded(lanes, rows) < _padded(rows, lanes):
            found[value] = (1, 0)
    swapped = [_is_swapped_gradient(spec) for spec in program.specs]
    for op, spec in enumerate(program.op_spec.tolist() if any(swapped) else ()):
        if swapped[spec]:
            value = program.results_of(op)[0]
            *_, rows, lanes = shape = local.local_type(value, int(local.native[value])).shape
            if _padded(rows, lanes) <= _padded(lanes, rows):
                found[value] = tuple(range(len(shape)))
    return found


def _padded(rows: int, lanes: int) -> int:
    """Elements of whole layout tiles."""
    return math.ceil(rows / ROWS) * ROWS * math.ceil(lanes / LANES) * LANES


def _is_swapped_gradient(spec: OpSpec) -> bool:
    """True where the features of a kernel are the last two dims of its gradient, and XLA swaps the two operands."""
    traits = traits_of(spec)
    if not isinstance(traits, Convolution) or not traits.of_kernel(spec) or not swaps_operands(spec):
        return False
    numbers, rank = spec.attributes["dimension_numbers"], len(spec.results[0].shape)
    return (numbers["output_batch_dimension"], numbers["output_feature_dimension"]) == (rank - 2, rank - 1)
