"""Convolutions leave images with their features along the lanes: layout tiles are not along dims of space.

    %y = convolution %x, %w     bf16[32,112,112,64]     tiles of 32 images by 64 features, padded to 128: 103 MB

Any other array would have 112 along the lanes, and take 59 MB. Where it pads less the images lie along the lanes, as 32
of three colours do. Found with libtpu 0.0.51 on v5e, in ResNet-50 and ConvNeXt with 16 and 32 images a device.

    %n = convert %images        bf16[32,224,224,3] of an argument: written so, 51 MB, and kept for the gradient of %w

Given in f32 such images are written so, too, since a convolution rounds what it reads (`few_features.py`).
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import FEW_FEATURES, Convolution, Elementwise
from autopart.core.program import Program


def _space(spec: OpSpec) -> int:
    """A bit for each dim of space of a convolution's result, but for the gradient of a kernel."""
    traits = traits_of(spec)
    if not isinstance(traits, Convolution) or traits.of_kernel(spec):
        return 0
    return sum(1 << d for d in spec.attributes["dimension_numbers"]["output_spatial_dimensions"])


FEW, GIVEN, ROUNDED, FIRST, ROWS = 1, 2, 4, 8, 16
"""Of a convolution: it reads images of few features; they are given in f32, and it rounds them; they were rounded
before, or scaled, of an argument; it is the first that reads them; they are given with few features, of which it
reads rows."""


def _reads_few(spec: OpSpec) -> bool:
    """True for a convolution of images of few features, and for the gradient of its kernel."""
    if (
        not isinstance(traits_of(spec), Convolution)
        or not spec.attributes["dimension_numbers"]["input_spatial_dimensions"]
    ):
        return False
    numbers, given, space = spec.attributes["dimension_numbers"], spec.operands[0].shape, _space(spec)
    groups = spec.attributes["feature_group_count"] * spec.attributes["batch_group_count"]
    dim = numbers["input_feature_dimension"] if space else numbers["input_batch_dimension"]
    return groups == 1 and given[dim] < FEW_FEATURES


def few_features(program: Program, rounded: np.ndarray, narrows: np.ndarray) -> np.ndarray:
    """int8[ops]: bits of convolutions of few features; `rounded` is of `rounded_images`, narrows[op]: it rounds f32."""
    found, seen = np.zeros(program.op_count, np.int8), set[int]()
    few = np.array([_reads_few(spec) for spec in program.specs], np.bool_)[program.op_spec]
    convolves = np.array([isinstance(traits_of(spec), Convolution) for spec in program.specs], np.bool_)
    for op in np.flatnonzero(convolves[program.op_spec] & ~few).tolist():
        image = int(program.operands[program.operand_ptr[op]])
        if is_rounded := _given_in_rows(program, image):
            found[op] = ROWS | is_rounded | (0 if image in seen else FIRST)
            seen.add(image)
    for op in np.flatnonzero(few).tolist():
        image, found[op] = int(program.operands[program.operand_ptr[op]]), FEW
        if rounded[image] or _is_scaled(program, image):
            found[op] |= ROUNDED
        elif narrows[op] and _is_given(program, image):
            found[op] |= GIVEN
        if image not in seen:
            found[op] |= FIRST
        seen.add(image)
    return found


def written_images(program: Program, rounded: np.ndarray, few: np.ndarray) -> np.ndarray:
    """bool[values]: `rounded_images`, and rounded rows of images as features; images of few features that are computed
    of given ones, as these lie. `few` is of `few_features`."""
    written = rounded.copy()
    for op in np.flatnonzero(few & FEW > 0).tolist():
        image = int(program.operands[program.operand_ptr[op]])
        written[image] |= _is_scaled(program, image)
    for op in np.flatnonzero((few & ROWS > 0) & (few & ROUNDED > 0)).tolist():
        written[program.operands[program.operand_ptr[op]]] = True
    return written


def _given_in_rows(program: Program, value: int) -> int:
    """GIVEN or ROUNDED where rows of an argument of few features were made features, else 0."""
    source, found = _only_operand(program, value), GIVEN
    if source < 0 or program.type_of(source).shape == program.type_of(value).shape:
        return 0
    if not _is_given(program, source):
        rounded, found = source, ROUNDED
        source = _only_operand(program, rounded)
        if source < 0 or program.type_of(source).shape != program.type_of(rounded).shape:
            return 0
    few = _is_given(program, source) and program.type_of(source).shape[-1] < FEW_FEATURES
    return found if few and _elements(program, source) == _elements(program, value) else 0


def _only_operand(program: Program, value: int) -> int:
    """What the op that makes a value reads, -1 where that is not one value."""
    maker = int(program.value_op[value])
    read = program.operands[program.operand_ptr[maker] : program.operand_ptr[maker + 1]]
    return int(read[0]) if len(read) == 1 else -1


def _elements(program: Program, value: int) -> int:
    return math.prod(program.type_of(value).shape)


def _is_given(program: Program, value: int) -> bool:
    return program.spec(int(program.value_op[value])).kind == "argument"


def gradient_rows(program: Program) -> np.ndarray:
    """int32[ops]: of the gradient of a kernel, how many places the images' last dim of space had in the result of the
    convolution itself; 0 for all other ops."""
    rows = np.zeros(len(program.specs), np.int32)
    for row, spec in enumerate(program.specs):
        if isinstance(traits_of(spec), Convolution) and not _space(spec):
            places = spec.attributes["dimension_numbers"]["kernel_spatial_dimensions"]
            rows[row] = spec.operands[1].shape[places[-1]] if places else 0
    return rows[program.op_spec]


def rounded_images(program: Program) -> np.ndarray:
    """bool[values]: images that are given, rounded to a narrower type for a convolution."""
    found, spaces = np.zeros(program.value_count, np.bool_), [_space(spec) for spec in program.specs]
    for op in np.flatnonzero(np.array(spaces, np.int32)[program.op_spec]).tolist():
        image = int(program.operands[program.operand_ptr[op]])
        maker = int(program.value_op[image])
        read = program.operands[program.operand_ptr[maker] : program.operand_ptr[maker + 1]]
        narrower = len(read) == 1 and program.element_bytes[read[0]] > program.element_bytes[image]
        found[image] = narrower and _is_given(program, int(read[0]))
    return found


def _is_scaled(program: Program, value: int) -> bool:
    """True for what is computed, element by element, of one argument of its shape and of less: pixels as numbers."""
    found = False
    while not _is_given(program, value):
        maker = int(program.value_op[value])
        read = program.operands[program.operand_ptr[maker] : program.operand_ptr[maker + 1]]
        if not isinstance(traits_of(program.spec(maker)), Elementwise):
            return False
        shape = program.type_of(value).shape
        alike = [
            int(each) for each in read if program.type_of(int(each)).shape == shape and not _is_spread(program, each)
        ]
        if len(alike) != 1:
            return False
        value, found = alike[0], True
    return found


def _is_spread(program: Program, value: int) -> bool:
    """True for what has fewer elements before it is broadcast."""
    source = _only_operand(program, value)
    return source >= 0 and _elements(program, source) < _elements(program, value)
