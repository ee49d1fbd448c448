"""Convolutions of few images: XLA:TPU cuts each image along its last dim of space into 8 parts, images of their own.

    %y = convolution %x, %w      bf16[4,32,32,128], windows of 3 x 3 with a border of 1
                                 32 images of [32, 5] places: 8 x 5 = 40 for the 34 that the windows see
    enter    %x is padded and cut, and each part gets a border: the places of its neighbours that windows read
    stay     the next convolution of %y adds the border alone; ops element by element take the parts as they are
    leave    for any other reader the parts are put together
    again    what meets longer parts, or windows that do not begin anew with each, is written, and cut again
    sum      the gradient of %w is summed over parts, of which it gets a copy shifted to each place of the window

Found with libtpu 0.0.51: v4, v5e, v5p, v6e and v7 cut up to 7 images, v2 and v3 one, if the border is no longer than a
part and there are two places for each part. Which ops take parts is in `image_uses.py`, what copies cost in
`part_copies.py`.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.layout import action_of
from autopart.core.ops.traits import FEW_FEATURES
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.image_uses import ANY_PLACE, BY_IMAGE, IN_PARTS, SUMMED_UP
from autopart.costmodel.simulator.facts.op_classes import CONV, REDUCE
from autopart.costmodel.simulator.local.part_copies import (
    BORDER,
    FEW,
    FEW_PLACES,
    FEW_SHIFT,
    LEAVE,
    LEAVE_NARROW,
    LONG_RECUT,
    LONG_SHIFT,
    MASK,
    ODD_BORDER,
    PAD,
    RECUT,
    SHIFT,
    SPREAD,
    SPREAD_FEATURES,
    SPREAD_ROWS,
    STAY,
    SUM,
    TURN,
    count_copy,
)
from autopart.costmodel.simulator.local.spread_images import spread_rows

PARTS = 8
"""Parts of each image."""

LEAST_PLACES = 2
"""With fewer places for a part a convolution begins no cutting; it goes on with what is cut."""

LANES = 128
"""Features, or the rows of images, lie along so many lanes, and are padded to that."""

MOST_LANES = 4.0
"""Where parts are shifted, rows lie along the lanes if features would be padded to more than so many times as many."""

FEW_ROWS = 4
"""Few features lie in tiles of so many rows."""

RECUT_SHARE = 1 / 12
"""Images of so much of the chip's memory are cut again on the chip."""

SAME_SHARE = 0.999
"""Parts of lesser shares of an image are shorter."""

WORD_BYTES = 4.0
"""Elements of fewer bytes share a place, and take longer to put together."""


@kernel
def cut_images(program: ProgramArrays, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in which values are in parts, what is copied for that, and the work that longer images are."""
    for value in range(held.images.shape[0]):
        held.images.part[value], held.images.cut_by[value] = 0.0, -1
        held.images.is_copied[value] = held.images.is_written[value] = False
    for op in range(held.padding.shape[0]):
        held.padding.copies[op], held.padding.copied_bytes[op], held.padding.walked[op] = 0.0, 0.0, 1.0
        if lowered.cut_images == 0:
            continue
        if program.ops.op_class[op] != CONV:
            _in_step(program, lowered, held, op)
        elif program.ops.is_gradient[op]:
            _gradient(program, lowered, held, op)
        else:
            _convolution(program, lowered, held, op)
    for value in range(held.images.shape[0]):
        if program.values.is_output[value]:
            _leave(program, lowered, held, value, False)


@kernel
def _convolution(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Decides whether a convolution's images are cut."""
    lhs, result = program.operand_ptr[op], program.result_ptr[op]
    _leave(program, lowered, held, program.uses.operands[lhs + 1], False)
    part = _part(program, lowered, held, op)
    if part == 0.0:
        _leave(program, lowered, held, program.uses.operands[lhs], False)
        return
    space, value, layout = program.spaces[program.ops.spec[op]], program.uses.operands[lhs], lowered.required[lhs]
    length = local_length(program, lowered, value, layout, space.space)
    place = held.uses.use_elements[lhs] / length
    in_lanes = place * _fewest_lanes(program, lowered, value, layout, space.features, space.rows)
    if _is_cut(program, lowered, held, lhs) and part <= _known_part(held, value, length):
        known = _known_part(held, value, length)
        if known % space.stride > 0.0:
            _recut(program, lowered, held, value, part / length)
        elif space.holes == 1:
            part = known
        if space.halo > 0:
            features = _lanes(program, lowered, value, layout, space.features)
            count_copy(held, op, STAY, place * features * PARTS * space.halo)
    else:
        _leave(program, lowered, held, value, False)
        if space.rows >= 0 and program.ops.is_argument[program.values.value_op[value]]:
            count_copy(held, op, TURN, in_lanes * length)
        if space.halo > 0 or part * PARTS > length:
            count_copy(held, op, PAD, in_lanes * PARTS * part)
        if space.halo > 0:
            count_copy(held, op, ODD_BORDER if part % 2 == 1 else BORDER, in_lanes * PARTS * (part + space.halo))
            if local_length(program, lowered, value, layout, space.features) < FEW_FEATURES:
                count_copy(held, op, FEW, in_lanes * PARTS * (part + space.halo))
        held.images.is_copied[value] = True
    left = part * space.holes / space.stride
    share = left / local_length(program, lowered, result, lowered.native[result], space.space_out)
    held.ops.unfilled[op] *= max(1.0, PARTS * share)
    if space.holes > 1:
        held.ops.unfilled[op] *= _spread_less(program, lowered, op)
    _cut(program, lowered, held, op, share, op)


@kernel
def _spread_less(program: ProgramArrays, lowered: Lowered, op: int) -> float:
    """The work of images in parts, each a row of its own, over that of whole images with holes between their places."""
    space, lhs, result = program.spaces[program.ops.spec[op]], program.operand_ptr[op], program.result_ptr[op]
    value, layout, tile = program.uses.operands[lhs], lowered.required[lhs], lowered.matmul_tile
    images = local_length(program, lowered, value, layout, space.images)
    inner = local_length(program, lowered, value, layout, space.features)
    columns = local_length(program, lowered, result, lowered.native[result], space.features_out)
    few = lowered.cut_images > 1 and not program.specs.swaps[program.ops.spec[op]]
    parts = spread_rows(inner, columns, PARTS * images, tile, few)
    return parts / spread_rows(inner, columns, images, tile, few)


@kernel
def _part(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> float:
    """The places of a part of the images that a convolution reads; 0 if it reads whole images."""
    space, lhs, result = program.spaces[program.ops.spec[op]], program.operand_ptr[op], program.result_ptr[op]
    if not space.is_one or held.uses.use_elements[lhs] == 0 or held.values.native_elements[result] == 0:
        return 0.0
    value, layout, cut = program.uses.operands[lhs], lowered.required[lhs], _is_cut(program, lowered, held, lhs)
    seen = local_length(program, lowered, value, layout, space.space) + space.padding
    least = space.least if cut else max(space.least, LEAST_PLACES)
    few = local_length(program, lowered, value, layout, space.images) <= lowered.cut_images
    if not few or space.halo > np.ceil(seen / PARTS) or seen < least * PARTS:
        return 0.0
    out = local_length(program, lowered, result, lowered.native[result], space.space_out)
    windows = 1 if cut else program.ops.image_stride[op]
    step = space.stride * windows
    part = np.ceil(np.ceil(out / PARTS) / space.holes / windows) * step
    while part * PARTS + (space.halo if cut else 0) < seen:
        part += step
    return part


@kernel
def _known_part(held: LocalArrays, value: int, length: float) -> float:
    """The places of a part of a value that is cut."""
    return np.round(held.images.part[value] * length)


@kernel
def _gradient(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """The gradient of a kernel: if one operand is in parts, both are, and the first is shifted to each place of the
    window. Of a window with holes both are put together, and of one with a stride if the second's parts are shorter."""
    lhs, space = program.operand_ptr[op], program.spaces[program.ops.spec[op]]
    places, given = program.shape[program.result_ptr[op], space.space_out], program.uses.operands[lhs]
    spread = program.uses.operands[lhs + 1]
    if space.stride > 1:
        _leave(program, lowered, held, given, True)
        _leave(program, lowered, held, spread, True)
        return
    is_cut, is_spread_cut = _is_cut(program, lowered, held, lhs), _is_cut(program, lowered, held, lhs + 1)
    if not (is_cut or is_spread_cut):
        return
    if places == 1:
        _mask(program, lowered, held, op)
        return
    longest = max(held.images.part[given], held.images.part[spread])
    shorter = is_cut and is_spread_cut and held.images.part[spread] <= SAME_SHARE * longest
    if space.dilation > 1 and shorter:
        _leave(program, lowered, held, given, False)
        _leave(program, lowered, held, spread, False)
        return
    for use in range(lhs, lhs + 2):
        value, layout = program.uses.operands[use], lowered.required[use]
        _cut_again(program, lowered, held, value, longest)
        features, rows = (space.images, space.rows) if use == lhs else (space.columns, space.kernel_rows)
        elements = held.uses.use_elements[use]
        if _is_cut(program, lowered, held, use):
            elements *= PARTS * held.images.part[value]
        fewest = _fewest_lanes(program, lowered, value, layout, features, rows)
        in_lanes = elements * fewest
        if not _is_cut(program, lowered, held, use) and not held.images.is_copied[value]:
            count_copy(held, op, PAD, in_lanes)
        count_copy(held, op, SUM, in_lanes)
        if use == lhs:
            lanes = _lanes(program, lowered, value, layout, features)
            shifted = elements * (lanes if lanes <= MOST_LANES else fewest)
            length = local_length(program, lowered, value, layout, features)
            if places > FEW_PLACES and length < FEW_FEATURES:
                parts = PARTS * local_length(program, lowered, value, layout, space.features)
                in_rows = elements * np.ceil(length / FEW_ROWS) * FEW_ROWS / length * filled_lanes(parts)
                count_copy(held, op, FEW_SHIFT, in_rows * places)
            else:
                count_copy(held, op, SHIFT, shifted * places)
                count_copy(held, op, LONG_SHIFT, shifted * max(0, places - FEW_PLACES))


@kernel
def _mask(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """What a window of one place is multiplied by is written, and zero where parts are longer than images."""
    use, space = program.operand_ptr[op] + 1, program.spaces[program.ops.spec[op]]
    value = program.uses.operands[use]
    share = PARTS * held.images.part[value]
    if held.images.cut_by[value] >= 0 and share > 1.0 / SAME_SHARE:
        held.images.is_written[value] = True
        lanes = _fewest_lanes(program, lowered, value, lowered.required[use], space.columns, space.kernel_rows)
        count_copy(held, op, MASK, held.uses.use_elements[use] * share * lanes)


@kernel
def _in_step(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Decides whether the result of another op is in parts."""
    first, end, share, by, stays = program.operand_ptr[op], program.operand_ptr[op + 1], 0.0, -1, True
    for use in range(first, end):
        value, reads = program.uses.operands[use], program.uses.reads[use]
        in_parts = reads == IN_PARTS and _is_cut(program, lowered, held, use)
        if in_parts and held.images.part[value] > share:
            share, by = held.images.part[value], held.images.cut_by[value]
        stays = stays and (reads in (ANY_PLACE, BY_IMAGE) or in_parts)
    if stays and by >= 0 and program.ops.image_stride[op] > 1:
        share = _windows(program, lowered, held, op, share, by)
        stays = share > 0.0
    if stays and by >= 0:
        for use in range(first, end):
            if program.uses.reads[use] == IN_PARTS:
                _cut_again(program, lowered, held, program.uses.operands[use], share)
            elif program.uses.reads[use] == BY_IMAGE:
                _spread(program, lowered, held, program.uses.operands[use], share, by)
        _cut(program, lowered, held, op, share, by)
        return
    for use in range(first, end):
        value = program.uses.operands[use]
        if program.uses.reads[use] != SUMMED_UP:
            _leave(program, lowered, held, value, False)
        elif _is_cut(program, lowered, held, use):
            held.padding.walked[op] = max(held.padding.walked[op], _widened(program, lowered, held, value))


@kernel
def _windows(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int, share: float, by: int) -> float:
    """The share of an image in each part that windows leave, where one begins with each part.

    Into parts that they do not fit into the image is cut again; what is spread over windows leaves whole images then.
    """
    space, result, stride = program.spaces[program.ops.spec[by]], program.result_ptr[by], program.ops.image_stride[op]
    length = local_length(program, lowered, result, lowered.native[result], space.space_out)
    fits = np.round(share * length) % stride == 0.0
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        if program.uses.reads[use] == IN_PARTS:
            fits = fits and held.images.part[program.uses.operands[use]] > SAME_SHARE * share
    if fits or program.ops.op_class[op] != REDUCE:
        return share if fits else 0.0
    again = np.ceil(length / PARTS / stride) * stride / length
    _recut(program, lowered, held, program.uses.operands[program.operand_ptr[op]], again)
    return again


@kernel
def _spread(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int, share: float, by: int) -> None:
    """What differs by image is written for every place; by groups of features with rows along the lanes, and turned,
    where features fill fewer of them."""
    if held.images.is_written[value]:
        return
    held.images.is_written[value] = True
    space, result = program.spaces[program.ops.spec[by]], program.result_ptr[by]
    by_rows = _left_lanes(program, lowered, by)
    by_features = _lanes(program, lowered, result, lowered.native[result], space.features_out)
    if by_rows < by_features <= MOST_LANES and program.values.rank[value] > program.values.rank[result]:
        elements = held.values.native_elements[value] * share * PARTS * program.values.element_bytes[value] / WORD_BYTES
        count_copy(held, by, SPREAD, elements * (SPREAD_ROWS * by_rows + SPREAD_FEATURES * by_features))


@kernel
def _cut_again(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int, share: float) -> None:
    """Cuts parts that are shorter than others that they meet into parts as long as these; they are written first."""
    if (
        held.images.cut_by[value] >= 0
        and not held.images.is_written[value]
        and held.images.part[value] <= SAME_SHARE * share
    ):
        _recut(program, lowered, held, value, share)


@kernel
def _recut(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int, share: float) -> None:
    """Counts the copies of a value into parts of another length."""
    by = held.images.cut_by[value]
    held.images.is_written[value] = True
    elements = held.values.native_elements[value] * _left_lanes(program, lowered, by) * share * PARTS
    fits = WORD_BYTES * elements <= RECUT_SHARE * lowered.on_chip_bytes
    count_copy(held, by, RECUT if fits else LONG_RECUT, elements)


@kernel
def _cut(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int, share: float, by: int) -> None:
    """Notes that an op leaves parts, each with this share of an image's places; a redistribution reads whole images."""
    result = program.result_ptr[op]
    held.images.part[result], held.images.cut_by[result] = share, by
    held.padding.walked[op] = _widened(program, lowered, held, result)
    if held.values.at_def[result] >= 0:
        _leave(program, lowered, held, result, False)
        held.images.cut_by[result] = -1


@kernel
def _is_cut(program: ProgramArrays, lowered: Lowered, held: LocalArrays, use: int) -> bool:
    """True if a use reads parts."""
    value = program.uses.operands[use]
    if held.images.cut_by[value] >= 0 and held.uses.of_use[use] >= 0:
        _leave(program, lowered, held, value, False)
        return False
    return held.images.cut_by[value] >= 0


@kernel
def _leave(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int, turned: bool) -> None:
    """Puts the parts of a value together, once for all who read it; counted to the convolution that it comes from.

    Parts of rows that pad nothing lie in memory as the rows do, except for who needs places next to each other: the
    gradient of a window with holes.
    """
    by = held.images.cut_by[value]
    if by < 0 or held.images.is_copied[value]:
        return
    held.images.is_copied[value] = True
    share = held.images.part[value]
    if turned or program.spaces[program.ops.spec[by]].rows_out >= 0 or share * PARTS != 1.0:
        how = LEAVE if program.values.element_bytes[value] >= WORD_BYTES else LEAVE_NARROW
        count_copy(
            held, by, how, held.values.native_elements[value] * _left_lanes(program, lowered, by) * share * PARTS
        )


@kernel
def _widened(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int) -> float:
    """The elements of the parts, with those that fill lanes, over those of the images as they are held otherwise.

    Features lie along the lanes, or parts where they are more.
    """
    plain = held.values.native_elements[value] * program.values.element_bytes[value]
    if plain == 0.0:
        return 1.0
    by = held.images.cut_by[value]
    result, space = program.result_ptr[by], program.spaces[program.ops.spec[by]]
    layout = lowered.native[result]
    parts = PARTS * local_length(program, lowered, result, layout, space.images_out)
    lanes = filled_lanes(max(parts, local_length(program, lowered, result, layout, space.features_out)))
    return max(1.0, PARTS * held.images.part[value] * lanes * plain / held.values.native_bytes[value])


@kernel
def local_length(program: ProgramArrays, lowered: Lowered, value: int, layout: int, dim: int) -> float:
    """The length of a dim on one device."""
    size = float(program.shape[value, dim])
    for axis in range(lowered.axis_sizes.shape[0]):
        if action_of(layout, axis) == dim + 1:
            size /= lowered.axis_sizes[axis]
    return size


@kernel
def filled_lanes(size: float) -> float:
    """Elements with those that fill up the lanes along which a dim of `size` lies, over elements."""
    size = max(1.0, size)
    return float(np.ceil(size / LANES) * LANES / size)


@kernel
def _lanes(program: ProgramArrays, lowered: Lowered, value: int, layout: int, dim: int) -> float:
    """`filled_lanes` of a dim on one device."""
    return filled_lanes(local_length(program, lowered, value, layout, dim))


@kernel
def _left_lanes(program: ProgramArrays, lowered: Lowered, op: int) -> float:
    """`_fewest_lanes` of what a convolution leaves."""
    space, result = program.spaces[program.ops.spec[op]], program.result_ptr[op]
    return _fewest_lanes(program, lowered, result, lowered.native[result], space.features_out, space.rows_out)


@kernel
def _fewest_lanes(program: ProgramArrays, lowered: Lowered, value: int, layout: int, features: int, rows: int) -> float:
    """The same where features or rows lie along them, whichever are padded less."""
    lanes = _lanes(program, lowered, value, layout, features)
    return min(lanes, _lanes(program, lowered, value, layout, rows)) if rows >= 0 else lanes
