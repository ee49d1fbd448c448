"""Convolutions of few images: XLA:TPU cuts each image along its last dim of space into 8 parts, images of their own.

    %y = convolution %x, %w      bf16[4,32,32,128], windows of 3 x 3 with a border of 1
                                 32 images of [32, 5] places: 8 x 5 = 40 for the 34 that the windows see
    enter    %x is padded, turned and cut, and each part gets the places of its neighbours that windows read
    stay     the next convolution of %y adds these places alone; ops element by element take the parts as they are
    leave    for any other reader the parts are put together
    sum      the gradient of %w is summed over parts, of which it gets copies shifted by each place of the window
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.layout import action_of
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.image_uses import ANY_PLACE, IN_PARTS, SUMMED_UP
from autopart.costmodel.simulator.op_classes import CONV

PARTS = 8
"""Parts of each image."""

LANES = 128
"""Features, or the rows of images, lie along so many lanes, and are padded to that."""

TURN, PAD, BORDER, ODD_BORDER, STAY, LEAVE, LEAVE_NARROW, SUM, SHIFT, LONG_SHIFT = range(10)
KERNELS = (1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 7.0, 0.0, 0.0)
PASSES = (4.3, 5.0, 2.0, 4.0, 2.2, 3.7, 7.5, 10.0, 3.5, 5.0)

FEW_TAPS = 3
"""By way: kernels that copy, and how often the elements that they copy, 2 bytes each, pass at HBM's rate."""

COPIED_BYTES = 2.0
WORD_BYTES = 4.0


@kernel
def cut_images(program: ProgramArrays, lowered: Lowered, held: LocalArrays) -> None:
    """Fills in which values are in parts, what is copied for that, and the work that longer images are."""
    for value in range(program.values.shape[0]):
        held.values.part[value], held.values.cut_by[value], held.values.is_left[value] = 0.0, -1, False
    for op in range(program.ops.shape[0]):
        held.ops.copies[op], held.ops.copied_bytes[op], held.ops.widened[op] = 0.0, 0.0, 1.0
        if lowered.cut_images > 0:
            if program.ops.op_class[op] == CONV:
                _convolution(program, lowered, held, op)
            else:
                _in_step(program, lowered, held, op)
    for value in range(program.values.shape[0]):
        if program.values.is_output[value]:
            _leave(program, lowered, held, value)


@kernel
def _convolution(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Decides whether a convolution's images are cut."""
    lhs, rhs, result = program.operand_ptr[op], program.operand_ptr[op] + 1, program.result_ptr[op]
    space = program.spaces[program.ops.spec[op]]
    if program.ops.is_gradient[op]:
        if _is_cut(program, lowered, held, lhs) or _is_cut(program, lowered, held, rhs):
            _sum(program, lowered, held, op)
        return
    _leave_at(program, lowered, held, rhs)
    if not space.is_one:
        _leave_at(program, lowered, held, lhs)
        return
    value = program.uses.operands[lhs]
    length = local_length(program, lowered, value, lowered.required[lhs], space.space)
    images = local_length(program, lowered, value, lowered.required[lhs], space.images)
    seen, cut = length + space.padding, _is_cut(program, lowered, held, lhs)
    suits = images <= lowered.cut_images and space.halo <= np.ceil(seen / PARTS)
    if space.least > 2:
        suits = suits and seen >= space.least * PARTS
    if not suits or not (cut or seen >= 2 * PARTS):
        _leave_at(program, lowered, held, lhs)
        return
    out = local_length(program, lowered, result, lowered.native[result], space.space_out)
    part = np.ceil(np.ceil(out / PARTS) / space.holes) * space.stride
    ahead = space.halo if cut else 0
    while part * PARTS + ahead < seen:
        part += space.stride
    in_lanes = held.uses.use_elements[lhs] / length * _lanes(program, lowered, value, lowered.required[lhs], space.features)
    row = held.uses.use_elements[lhs] / length * _fewest_lanes(program, lowered, value, lowered.required[lhs], space.features, space.rows)
    known = np.round(held.values.part[value] * length) if cut else 0.0
    if cut and known >= part:
        part = np.ceil(known / space.stride) * space.stride
        if space.halo > 0:
            _copy(held, op, STAY, in_lanes * PARTS * space.halo)
    else:
        if space.rows >= 0 and program.ops.is_argument[program.values.value_op[value]]:
            _copy(held, op, TURN, row * length)
        if space.halo > 0 or part * PARTS > length:
            _copy(held, op, PAD, row * PARTS * part)
        if space.halo > 0:
            _copy(held, op, ODD_BORDER if part % 2 == 1 else BORDER, row * PARTS * (part + space.halo))
    held.values.is_left[value] = held.values.is_left[value] or not cut
    left = part * space.holes / space.stride
    held.ops.unfilled[op] *= max(1.0, left * PARTS / out)
    held.values.part[result], held.values.cut_by[result] = left / out, op
    held.ops.widened[op] = _widened(program, lowered, held, result, left / out)
    if held.values.at_def[result] >= 0:
        _leave(program, lowered, held, result)
        held.values.cut_by[result] = -1


@kernel
def _sum(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """The gradient of a kernel: what it sums over is cut where it is not, and shifted for each place of the window."""
    space, result = program.spaces[program.ops.spec[op]], program.result_ptr[op]
    taps = program.shape[result, space.space_out]
    if space.stride > 1:
        _leave_at(program, lowered, held, program.operand_ptr[op])
        _leave_at(program, lowered, held, program.operand_ptr[op] + 1)
    if space.stride > 1 or taps == 1:
        return
    for i in range(2):
        use = program.operand_ptr[op] + i
        value = program.uses.operands[use]
        features, rows = (space.images, space.rows) if i == 0 else (space.columns, space.kernel_rows)
        layout, elements = lowered.required[use], held.uses.use_elements[use]
        fewest = elements * _fewest_lanes(program, lowered, value, layout, features, rows)
        if _is_cut(program, lowered, held, use):
            elements *= PARTS * held.values.part[value]
            fewest *= PARTS * held.values.part[value]
        elif not held.values.is_left[value]:
            _copy(held, op, PAD, fewest)
        held.ops.copied_bytes[op] += PASSES[SUM] * COPIED_BYTES * fewest
        if i == 0:
            shifted = elements * _lanes(program, lowered, value, layout, features)
            _copy(held, op, SHIFT, shifted * taps)
            _copy(held, op, LONG_SHIFT, shifted * max(0, taps - FEW_TAPS))
    held.ops.copies[op] += KERNELS[SUM]


@kernel
def _in_step(program: ProgramArrays, lowered: Lowered, held: LocalArrays, op: int) -> None:
    """Decides whether the result of another op is in parts."""
    first, end, part, by = program.operand_ptr[op], program.operand_ptr[op + 1], 0.0, -1
    stays = True
    for use in range(first, end):
        reads, cut = program.uses.reads[use], _is_cut(program, lowered, held, use)
        if cut and reads == IN_PARTS:
            value = program.uses.operands[use]
            if held.values.part[value] > part:
                part, by = held.values.part[value], held.values.cut_by[value]
        stays = stays and (reads == ANY_PLACE or cut and reads == IN_PARTS)
    if stays and by >= 0:
        result = program.result_ptr[op]
        held.values.part[result], held.values.cut_by[result] = part, by
        held.ops.widened[op] = _widened(program, lowered, held, result, part)
        if held.values.at_def[result] >= 0:
            _leave(program, lowered, held, result)
            held.values.cut_by[result] = -1
        return
    for use in range(first, end):
        if program.uses.reads[use] != SUMMED_UP:
            _leave_at(program, lowered, held, use)
        elif _is_cut(program, lowered, held, use):
            value = program.uses.operands[use]
            wide = _widened(program, lowered, held, value, held.values.part[value])
            held.ops.widened[op] = max(held.ops.widened[op], wide)


@kernel
def _widened(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int, part: float) -> float:
    """The elements of the parts, with those that fill lanes, over those of the images as they are held otherwise."""
    by = held.values.cut_by[value]
    result, space = program.result_ptr[by], program.spaces[program.ops.spec[by]]
    layout = lowered.native[result]
    lanes = _lanes(program, lowered, result, layout, space.features_out)
    lanes *= _fewest_lanes(program, lowered, result, layout, space.features_out, space.rows_out)
    plain = held.values.native_elements[value] * program.values.element_bytes[value]
    if plain == 0.0:
        return 1.0
    return max(1.0, PARTS * part * np.sqrt(lanes) * plain / held.values.native_bytes[value])


@kernel
def _is_cut(program: ProgramArrays, lowered: Lowered, held: LocalArrays, use: int) -> bool:
    """True if a use reads parts; a redistribution puts them together."""
    value = program.uses.operands[use]
    if held.values.cut_by[value] < 0:
        return False
    if held.uses.of_use[use] >= 0:
        _leave(program, lowered, held, value)
        return False
    return True


@kernel
def _leave_at(program: ProgramArrays, lowered: Lowered, held: LocalArrays, use: int) -> None:
    _leave(program, lowered, held, program.uses.operands[use])


@kernel
def _leave(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int) -> None:
    """Puts the parts of a value together, once for all who read it; counted to the convolution that it comes from."""
    by = held.values.cut_by[value]
    if by >= 0 and not held.values.is_left[value]:
        held.values.is_left[value] = True
        result, space = program.result_ptr[by], program.spaces[program.ops.spec[by]]
        if space.rows_out < 0 and held.values.part[value] * PARTS == 1.0:
            return
        lanes = _fewest_lanes(program, lowered, result, lowered.native[result], space.features_out, space.rows_out)
        how = LEAVE if program.values.element_bytes[value] >= WORD_BYTES else LEAVE_NARROW
        _copy(held, by, how, held.values.native_elements[value] * lanes * held.values.part[value] * PARTS)


@kernel
def _copy(held: LocalArrays, op: int, how: int, elements: float) -> None:
    held.ops.copies[op] += KERNELS[how]
    held.ops.copied_bytes[op] += PASSES[how] * COPIED_BYTES * elements


@kernel
def local_length(program: ProgramArrays, lowered: Lowered, value: int, layout: int, dim: int) -> float:
    """The length of a dim on one device."""
    size = float(program.shape[value, dim])
    for axis in range(lowered.axis_sizes.shape[0]):
        if action_of(layout, axis) == dim + 1:
            size /= lowered.axis_sizes[axis]
    return size


@kernel
def _lanes(program: ProgramArrays, lowered: Lowered, value: int, layout: int, dim: int) -> float:
    """Elements with those that fill up the lanes along which a dim lies, over elements."""
    size = local_length(program, lowered, value, layout, dim)
    return float(np.ceil(size / LANES) * LANES / size)


@kernel
def _fewest_lanes(
    program: ProgramArrays, lowered: Lowered, value: int, layout: int, features: int, rows: int
) -> float:
    """The same where features or rows lie along them, whichever are padded less."""
    lanes = _lanes(program, lowered, value, layout, features)
    return min(lanes, _lanes(program, lowered, value, layout, rows)) if rows >= 0 else lanes
