"""Few images that are not cut lie along the rows of layout tiles, and are padded to these.

    %y = convolution ...          f32[4,32,32,96], windows of 7 x 7      tiles of 8 x 128: 4 images of 8, 96 of 128
    %z = multiply %y, %scale      walks through 8 images

What a convolution leaves, and all that is computed of it element by element: libtpu 0.0.51 gives such arrays tiles of
4 x 128 or 2 x 128, of which a register holds one. So they take no more memory, and kernels as long as for 8 images.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, REDUCE
from autopart.costmodel.simulator.local.few_images import local_length

MOST_PADDED = 3.0
"""Of one or two images the compiler lays some arrays out anew: fitted on norms of images on v5e and v3."""


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
                widest = max(widest, held.images.padded[program.uses.operands[use]])
        if kind == ELEMENTWISE or program.ops.is_view[op]:
            held.images.padded[result] = widest
        if kind in (ELEMENTWISE, REDUCE):
            held.padding.walked[op] = max(held.padding.walked[op], widest)


@kernel
def _images(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> float:
    """The rows of a tile over the images that lie along them, where these are fewer; 1 for images in parts."""
    spec, result = program.ops.spec[op], program.result_ptr[op]
    sums_images = program.ops.is_gradient[op] or (program.specs.images[spec] == 0 and program.specs.taps[spec] != 0)
    space = program.spaces[spec]
    if sums_images or not space.is_one or held.images.cut_by[result] >= 0 or space.rows < 0:
        return 1.0
    images = local_length(program, lowered, result, lowered.native[result], space.images_out)
    return max(1.0, min(MOST_PADDED, lowered.layout_tile[0] / max(1.0, images)))
