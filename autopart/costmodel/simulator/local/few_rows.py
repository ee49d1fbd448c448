"""Few images that are not cut lie along the rows of layout tiles, and are padded to these.

    %y = convolution ...          f32[4,32,32,96], windows of 7 x 7      tiles of 8 x 128: 4 images of 8, 96 of 128
    %z = multiply %y, %scale      walks through 8 images

What a convolution leaves, and all that is computed of it element by element: libtpu 0.0.51 gives such arrays tiles of
4 x 128 or 2 x 128, of which a register holds one. So they take no more memory, and kernels as long as for 8 images.
A convolution writes a tile of few rows of f32 as slowly as one of ten: on v3 15 cycles for each 2 images, and 20 for 4
or 8, of 32 to 256 features, where nothing else takes longer.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import F32_BYTES, LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, REDUCE
from autopart.costmodel.simulator.local.few_images import local_length

MOST_PADDED = 3.0
"""Of one or two images the compiler lays some arrays out anew: fitted on norms of images on v5e and v3."""

LEAST_ROWS = 2.0
"""Images along the rows of a tile, at least."""

WRITTEN_ROWS = 1.25
"""A tile is written as slowly as one of so many times the rows of a full one."""


@kernel
def pad_images(program: ProgramArrays, lowered: Lowered, held: LocalArrays) -> None:
    """Adds to what `cut_images` has found: elements that kernels walk through over elements."""
    for value in range(held.images.shape[0]):
        held.images.padded[value] = 1.0
    for op in range(held.padding.shape[0]):
        kind, result = program.ops.op_class[op], program.result_ptr[op]
        if kind == CONV:
            held.images.padded[result] = _images(program, lowered, held, op)
            continue
        if result == program.result_ptr[op + 1]:
            continue
        widest = 1.0
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            alike = kind == REDUCE or held.uses.use_elements[use] == held.values.native_elements[result]
            if alike and held.uses.of_use[use] < 0:
                widest = max(widest, _walked(held, program.uses.operands[use]))
        if kind == ELEMENTWISE or program.ops.is_view[op]:
            held.images.padded[result] = widest
        if kind in (ELEMENTWISE, REDUCE):
            held.padding.walked[op] = max(held.padding.walked[op], widest)


@kernel
def few_rows_of(program: ProgramArrays, held: LocalArrays, op: int) -> float:
    """How many times its images an op walks through that is a convolution of few; 1 for others."""
    if program.ops.op_class[op] != CONV or held.images.shape[0] == 0:
        return 1.0
    return _walked(held, program.result_ptr[op])


@kernel
def written_rows(program: ProgramArrays, held: LocalArrays, op: int) -> float:
    """What a convolution of few images takes to write them, over what their bytes take; 1 for others."""
    result = program.result_ptr[op]
    if program.ops.op_class[op] != CONV or held.images.shape[0] == 0 or held.images.padded[result] == 1.0:
        return 1.0
    return max(1.0, WRITTEN_ROWS * held.images.padded[result] * program.values.element_bytes[result] / F32_BYTES)


@kernel
def _walked(held: LocalArrays, value: int) -> float:
    return min(MOST_PADDED, float(held.images.padded[value]))


@kernel
def _images(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> float:
    """The rows of a tile over the images that lie along them, where these are fewer; 1 for images in parts."""
    spec, result = program.ops.spec[op], program.result_ptr[op]
    sums_images = program.ops.is_gradient[op] or (program.specs.images[spec] == 0 and program.specs.taps[spec] != 0)
    space = program.spaces[spec]
    if sums_images or not space.is_one or held.images.cut_by[result] >= 0:
        return 1.0
    images = local_length(program, lowered, result, lowered.native[result], space.images_out)
    return max(1.0, lowered.layout_tile[0] / max(LEAST_ROWS, 2.0 ** np.ceil(np.log2(images))))
