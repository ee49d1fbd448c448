"""Images of few features: the TPU compiler writes them once more for convolutions, and fills tiles with images.

    %y = convolution %x, %w      f32[8,256,256,3] in patches of 16 x 16

    turned     %x is given with a dim of space along the lanes: it is written as bf16, images along the lanes and
               features along the rows, 8 padded to 128 and 3 to 4, 67 MB for 6 MB, and kept for the gradient of %w
    packed     all 768 elements of a patch lie side by side in the matrix unit, 64 images stream through it, or more,
               or 64 parts of images that are cut
    gradient   what streams through is the 768, and images are summed over

Up to 4 images lie along the rows instead, and features along the lanes. The gradient then takes for each place of the
window, and each row of patches, as much as 64 features would, and as 128 patches. Where images along the lanes pad less
from the start they are given so, and none of this is written.

Found with libtpu 0.0.51 on v3 and v5e, f32 and bf16, on 127 programs of `python -m experiments.few_features`; 60 drawn
at random say how good it is.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import F32_BYTES, LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.image_layouts import FEW, FIRST, GIVEN, ROUNDED, ROWS
from autopart.costmodel.simulator.local.few_images import LANES, PARTS, local_length

IMAGES = 64
"""So many images stream through the matrix unit together."""

LEAST_ROWS = 4
"""Rows of a layout tile that are not left out: images, or features."""

FEW_IMAGES, FEW_CUT_IMAGES = 4, 2
"""Up to so many images lie along the rows; of such as are cut for the convolution itself (`few_images.py`)."""

SUBLANES, PADDED_FEATURES = 8, 64
"""What few features are padded to in a gradient that sums over images along the lanes, and over those along rows."""

BF16_BYTES = 2.0

SECOND_TURN = 1.5
"""Where nothing stays on the chip: how much longer rows are turned than features, for the same bytes."""

IMAGE_WEIGHT = 3.2
"""Operations of the vector unit for each element of padded images that a convolution reads: 0.8 cycles for 4 x 128 of
them on a v3, where the units work in turn."""


@kernel
def few_features(program: ProgramArrays, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in what is written of given images; adds to convolutions the work, the reads and the copies."""
    for value in range(held.images.shape[0]):
        held.images.written[value] = 0.0
    if lowered.turn_passes == 0.0:
        return
    for op in range(held.padding.shape[0]):
        if program.ops.few_features[op] & FEW and program.spaces.is_one[program.ops.spec[op]]:
            _convolution(program, lowered, held, op)
        elif program.ops.few_features[op] & ROWS and program.spaces.is_one[program.ops.spec[op]]:
            _of_rows(program, lowered, held, op)


@kernel
def _convolution(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    lhs, result, space = program.operand_ptr[op], program.result_ptr[op], program.spaces[program.ops.spec[op]]
    value, layout, row = program.uses.operands[lhs], lowered.required[lhs], program.ops.gradient_row[op]
    images = local_length(program, lowered, value, layout, space.features if row > 0 else space.images)
    features = local_length(program, lowered, value, layout, space.images if row > 0 else space.features)
    columns = local_length(program, lowered, result, lowered.native[result], space.features_out)
    left, met = held.values.native_elements[result], held.uses.use_elements[lhs + 1]
    if held.uses.use_elements[lhs] == 0 or left == 0 or met == 0:
        return
    places = held.uses.use_elements[lhs] / (images * features)
    is_cut = held.images.is_copied[value]
    if row > 0:
        by_rows = images <= FEW_IMAGES
        if is_cut:
            by_rows = images <= FEW_CUT_IMAGES and lowered.cut_images > 1
        taps, patches = left / (features * columns), met / (images * columns)
        held.ops.unfilled[op] *= _gradient(images, features, taps, patches, row, by_rows)
    elif is_cut:
        held.ops.unfilled[op] *= _up_to(PARTS * images, IMAGES) / (PARTS * images)
        return
    else:
        by_rows = images <= FEW_IMAGES
        held.ops.unfilled[op] *= 1.0 if by_rows else _up_to(images, IMAGES) / images
    rows, lanes = (images, features) if by_rows else (features, images)
    padded = places * max(LEAST_ROWS, 2.0 ** np.ceil(np.log2(rows))) * _up_to(lanes, LANES)
    held.ops.vector_flop[op] += IMAGE_WEIGHT * padded
    if not is_cut:
        _turn(program, lowered, held, op, images, by_rows, padded)


@kernel
def _gradient(images: float, features: float, taps: float, patches: float, row: float, by_rows: bool) -> float:
    """How much more the matrix unit does than its tiles would need if they were filled."""
    if not by_rows:
        return _up_to(images, IMAGES) / images * _up_to(taps * features, SUBLANES) / (taps * features)
    summed = _up_to(row * images, LANES) * patches / row if patches * images > LANES else float(LANES)
    return summed / (patches * images) * PADDED_FEATURES / features


@kernel
def _turn(
    program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int, images: float, by_rows: bool, padded: float
) -> None:
    """Counts the copy of given images to the first convolution that reads them, and what each reads of it."""
    lhs, facts = program.operand_ptr[op], program.ops.few_features[op]
    value, layout, row = program.uses.operands[lhs], lowered.required[lhs], program.ops.gradient_row[op]
    length = local_length(program, lowered, value, layout, program.spaces[program.ops.spec[op]].space)
    if not facts & (GIVEN | ROUNDED):
        return
    if not by_rows and _up_to(images, LANES) / images < _up_to(length, LANES) / length:
        return
    written = BF16_BYTES * padded
    if facts & GIVEN:
        if held.uses.use_buffer[lhs] == value:
            held.images.written[value] = written
        if row > 0 or written > lowered.on_chip_bytes:
            held.ops.image_bytes[op] += written
    if facts & FIRST and (facts & GIVEN or lowered.on_chip_bytes == 0.0):
        longer = _up_to(length, LANES) / length if length > LANES else 1.0
        held.padding.copies[op] += 1.0
        held.padding.copied_bytes[op] += lowered.turn_passes * written * longer
        held.padding.copied_bytes[op] += F32_BYTES * held.uses.use_elements[lhs] * longer


@kernel
def _of_rows(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Counts the copies of images of which rows of few features are read: with a dim of space along the lanes, then
    with rows or images there; at once where images pad less."""
    lhs, facts, space = program.operand_ptr[op], program.ops.few_features[op], program.spaces[program.ops.spec[op]]
    value, layout, row = program.uses.operands[lhs], lowered.required[lhs], program.ops.gradient_row[op]
    images = local_length(program, lowered, value, layout, space.features if row > 0 else space.images)
    features = local_length(program, lowered, value, layout, space.images if row > 0 else space.features)
    elements = held.uses.use_elements[lhs]
    if elements == 0:
        return
    height = elements / (images * features * local_length(program, lowered, value, layout, space.space))
    turned = BF16_BYTES * elements * _up_to(height, LANES) / height
    by_images, by_rows = _up_to(images, LANES) / images, _up_to(features, LANES) / features
    written = BF16_BYTES * elements * min(by_images, by_rows)
    at_once = by_images * height <= _up_to(height, LANES)
    if facts & GIVEN and held.uses.use_buffer[lhs] < program.values.shape[0]:
        held.images.written[held.uses.use_buffer[lhs]] = written
    elif facts & ROUNDED:
        source = program.uses.operands[program.operand_ptr[program.values.value_op[value]]]
        held.values.native_bytes[source] = max(held.values.native_bytes[source], written)
    if facts & FIRST:
        moved = F32_BYTES * elements * turned / (BF16_BYTES * elements) if facts & GIVEN else 0.0
        if at_once:
            moved += written + lowered.turn_passes * written
            held.padding.copies[op] += 1.0
        else:
            moved += turned
            held.padding.copies[op] += 2.0
            if lowered.on_chip_bytes == 0.0:
                moved += turned + written + SECOND_TURN * lowered.turn_passes * turned
        held.padding.copied_bytes[op] += moved


@kernel
def _up_to(size: float, whole: int) -> float:
    """A size with what fills it up to a multiple of `whole`."""
    return float(np.ceil(size / whole) * whole)
