"""Copies of images in front of convolutions: of reversed windows, and of several tasks' images that are joined.

    %r = reverse %dy             bf16[400,14,14,64]: 26.7 cycles for 8 x 128 elements (`swapped_windows.py`)
    %j = reshape %y              f32[4,100,14,14,64] as f32[400,14,14,64]: 45 cycles for 8 x 128 (`joined_images.py`)

Found with libtpu 0.0.51 on v5e. They are counted as seconds with the convolution that reads them first.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays
from autopart.costmodel.simulator.facts.joined_images import DIMS
from autopart.costmodel.simulator.facts.op_classes import CONV
from autopart.costmodel.simulator.local.few_images import filled_lanes, local_length
from autopart.costmodel.simulator.local.part_copies import COPIED_BYTES

REVERSED, JOINED = 5.7, 9.6
"""How often the bytes of each copy pass at HBM's rate."""


@kernel
def image_copies(program: ProgramArrays, lowered: Lowered, held: LocalArrays) -> None:
    """Adds the copies to convolutions, and fills in those that are held beside what convolutions leave."""
    for value in range(held.images.shape[0]):
        dims = np.int64(program.values.split[value])
        if dims > 0 and _padded(program, lowered, _split_in(program, value), dims) > 0.0:
            held.images.written[value] = held.values.native_bytes[value]
    for op in range(held.padding.shape[0]):
        if program.ops.is_swapped[op] and _window_along_lanes(program, lowered, op):
            _copy(held, op, REVERSED, padded_use(program, held, program.operand_ptr[op] + 1))
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            if program.uses.joined[use] > 0:
                padded = _padded_tasks(program, lowered, use)
                _copy(held, _reader(program, op), JOINED, padded * held.uses.use_elements[use])


@kernel
def _copy(held: LocalArrays, op: int, passes: float, elements: float) -> None:
    if elements > 0.0:
        held.padding.copies[op] += 1.0
        held.padding.copied_bytes[op] += passes * COPIED_BYTES * elements


@kernel
def _window_along_lanes(program: ProgramArrays, lowered: Lowered, op: int) -> bool:
    """True where the images that are a convolution's window lie along the lanes: otherwise they are reversed in the
    kernel that writes them. The dim that counts them comes before that of their features."""
    space, rhs = program.spaces[program.ops.spec[op]], program.operand_ptr[op] + 1
    value, layout = program.uses.operands[rhs], lowered.required[rhs]
    images, features = min(space.kernel_features, space.columns), max(space.kernel_features, space.columns)
    padded = filled_lanes(local_length(program, lowered, value, layout, images))
    return padded < filled_lanes(local_length(program, lowered, value, layout, features))


@kernel
def _reader(program: ProgramArrays, op: int) -> int:
    """The convolution that reads joined images; of a sum, the one without groups whose kernel computes it."""
    if program.ops.op_class[op] == CONV:
        return op
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        if program.uses.joined[use] == 0:
            return program.uses.producer[program.operand_ptr[program.uses.producer[use]]]
    return op


@kernel
def padded_use(program: ProgramArrays, held: LocalArrays, use: int) -> float:
    """Elements that a use reads, with those that fill up layout tiles."""
    value = program.uses.operands[use]
    plain = held.values.settled_elements[value] * program.values.element_bytes[value]
    return held.uses.use_elements[use] * held.values.settled_bytes[value] / plain if plain > 0 else 0.0


@kernel
def _padded_tasks(program: ProgramArrays, lowered: Lowered, use: int) -> float:
    """`_padded` of the images that a use reads."""
    view, dims = program.uses.producer[use], np.int64(program.uses.joined[use])
    if program.ops.op_class[program.uses.use_op[use]] != CONV:
        return _padded(program, lowered, program.uses.operands[use], dims)
    if not program.ops.is_view[view]:
        view = program.uses.producer[program.operand_ptr[view]]
    return _padded(program, lowered, program.uses.operands[program.operand_ptr[view]], dims)


@kernel
def _split_in(program: ProgramArrays, value: int) -> int:
    """The view of a value that has one dim more."""
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        made = program.result_ptr[program.uses.use_op[program.user[i]]]
        if program.values.rank[made] == program.values.rank[value] + 1:
            return int(made)
    return value


@kernel
def _padded(program: ProgramArrays, lowered: Lowered, tasks: int, dims: int) -> float:
    """The elements of each task's images with those that fill up lanes, over elements, where images lie along these and
    do not fill them; 0 otherwise."""
    layout = lowered.settled[tasks]
    images = filled_lanes(local_length(program, lowered, tasks, layout, dims // DIMS))
    features = filled_lanes(local_length(program, lowered, tasks, layout, dims % DIMS))
    return images if 1.0 < images < features else 0.0
