"""Images that the turns of a loop stack lie in the stack as each of them does, and slices of images as these do.

    %g = convolution %x, %w                 f32[128,8,64,256]      layout tiles of 128 images by 256 features
    %o = slice %g                           f32[128,8,64,64]       64 of them along the lanes, not 128 images
    %u = dynamic_update_slice %c, %h, %i    f32[10,128,8,64,64]    of what is computed of %o: the same tiles, 1.3 GB
    %p = dynamic_slice %c', %i              of the stack after the loop, for the backward pass: as it lies

Found with libtpu 0.0.51 on v5e, in two layers of a convolutional LSTM: 24 such stacks.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Slicing, Update
from autopart.core.program import Program
from autopart.core.splats import splat_behind
from autopart.costmodel.simulator.sizes import LANES_BIT

LANES = 128


def stack_images(program: Program, marks: np.ndarray) -> bool:
    """Marks stacks of marked images, and slices of these and of others; True if it marked any.

    marks[value]   0, or bits as in `image_layouts.py`
    """
    stacks = {op: _stack(program, marks, op) for op in program.owners if program.spec(op).kind == "carry"}
    stacks = {op: mark for op, mark in stacks.items() if mark}
    for op, mark in stacks.items():
        begin, updated = program.operands_of(op).tolist()
        marks[program.result_ptr[op] : program.result_ptr[op + 1]] = marks[updated] = mark
        if splat_behind(program, begin) is not None:
            marks[begin] = mark
    return _slice(program, marks) or len(stacks) > 0


def _stack(program: Program, marks: np.ndarray, carry: int) -> int:
    """The mark of what a loop carries, if it puts marked images into it; 0 if not, or if that is known already."""
    inside, updated = int(program.result_ptr[carry]), int(program.operands_of(carry)[1])
    writes = int(program.value_op[updated])
    if marks[inside] or not isinstance(traits_of(program.spec(writes)), Update):
        return 0
    whole, part = program.operands_of(writes)[:2].tolist()
    shapes = program.type_of(whole).shape, program.type_of(part).shape
    if whole != inside or not marks[part] or len(shapes[0]) != len(shapes[1]):
        return 0
    return int(marks[part]) | sum(1 << d for d, (n, m) in enumerate(zip(*shapes, strict=True)) if n != m)


def _slice(program: Program, marks: np.ndarray) -> bool:
    """Marks slices of what is marked; True if it marked any."""
    slices, found = np.array([_cuts(spec) for spec in program.specs], np.bool_), False
    for op in np.flatnonzero(slices[program.op_spec]).tolist():
        result, read = int(program.result_ptr[op]), int(program.operands_of(op)[0])
        if marks[read] and not marks[result]:
            marks[result], found = int(marks[read]) | _in_lanes(program.spec(op)), True
    return found


def _cuts(spec: OpSpec) -> bool:
    """True for a slice that keeps all dims."""
    traits = traits_of(spec)
    if not isinstance(traits, Slicing) or traits.indexed or not spec.operands:
        return False
    return len(spec.operands[0].shape) == len(spec.results[0].shape) > 1


def _in_lanes(spec: OpSpec) -> int:
    """A bit for the last dim of a slice of features that fill the lanes, which are less than a row of them."""
    whole, part = spec.operands[0].shape, spec.results[0].shape
    return LANES_BIT << len(part) - 1 if whole[-1] >= LANES > part[-1] else 0
