"""Convolutions leave images with their features along the lanes: layout tiles are not along dims of space.

    %y = convolution %x, %w     bf16[32,112,112,64]     tiles of 32 images by 64 features, padded to 128: 103 MB

Any other array would have 112 along the lanes, and take 59 MB. Where it pads less the images lie along the lanes, as 32
of three colours do. Found with libtpu 0.0.51 on v5e, in ResNet-50 and ConvNeXt with 16 and 32 images a device.

    %n = convert %images        bf16[32,224,224,3] of an argument: written so, 51 MB, and kept for the gradient of %w
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution
from autopart.core.program import Program
from autopart.costmodel.simulator.feature_groups import split_features
from autopart.costmodel.simulator.followed_layouts import follow_layouts


def _space(spec: OpSpec) -> int:
    """A bit for each dim of space of a convolution's result, but for the gradient of a kernel."""
    if not isinstance(traits_of(spec), Convolution):
        return 0
    numbers, kernel, left = spec.attributes["dimension_numbers"], spec.operands[1].shape, spec.results[0].shape
    space = numbers["output_spatial_dimensions"]
    window = math.prod(kernel[d] for d in numbers["kernel_spatial_dimensions"])
    return 0 if window > math.prod(left[d] for d in space) else sum(1 << d for d in space)


def rounded_images(program: Program) -> np.ndarray:
    """bool[values]: images that are given, rounded to a narrower type for a convolution."""
    found, spaces = np.zeros(program.value_count, np.bool_), [_space(spec) for spec in program.specs]
    for op in np.flatnonzero(np.array(spaces, np.int32)[program.op_spec]).tolist():
        image = int(program.operands[program.operand_ptr[op]])
        maker = int(program.value_op[image])
        read = program.operands[program.operand_ptr[maker] : program.operand_ptr[maker + 1]]
        narrower = len(read) == 1 and program.element_bytes[read[0]] > program.element_bytes[image]
        found[image] = narrower and program.spec(int(program.value_op[read[0]])).kind == "argument"
    return found


def outside_images(program: Program, op_class: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """int32[values]: a bit for each dim of space of what convolutions leave, and of what is computed of it.

    `op_class` is that of each op; `rounded` as `rounded_images` has it.
    """
    marks, spaces = np.zeros(program.value_count, np.int32), np.array([_space(s) for s in program.specs], np.int32)
    space = spaces[program.op_spec]
    marks[program.result_ptr[:-1][space > 0]] = space[space > 0]
    for op in np.flatnonzero(space > 0).tolist():
        image = program.operands[program.operand_ptr[op]]
        if rounded[image]:
            given = program.spec(op).attributes["dimension_numbers"]["input_spatial_dimensions"]
            marks[image] = sum(1 << d for d in given)
    follow_layouts(program, op_class, marks)
    while split_features(program, marks):
        follow_layouts(program, op_class, marks)
    return marks
