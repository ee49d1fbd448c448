"""Features of images that are split, and of which parts are taken or summed: the last part lies along the lanes.

    %y = convolution %x, %w      f32[6,32,32,100]      layout tiles of w by 100 features
    %p = reshape %y[.., 10:]     f32[6,32,32,3,30]     written anew, with 30 of 128 along the lanes
    %m = slice %p                f32[6,32,32,3,10]     as it lies; so is all that is computed of it, and its gradient

Groups of features of which each has a mean stay as the features lie (`feature_groups.py`). What is spread over such
parts lies as they do. Found with libtpu 0.0.51 on v3 and v5e, in mixtures of logistics and in boxes of a detector.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise, Slicing, View
from autopart.core.program import Program
from autopart.costmodel.simulator.arrays import F32_BYTES
from autopart.costmodel.simulator.facts.part_sums import sums_last
from autopart.costmodel.simulator.sizes import LANES_BIT, padded_elements

LIKED = 1.6
"""The features lie along the lanes where that takes up to so many times the bytes of the order that wastes least: of 40
shapes the 9 with up to 1.53 times lay so, and none of the others, with 1.77 times and more."""

SUBLANES, LANES = 8, 128


class FeaturesInParts(NamedTuple):
    """What lies so.

    marks    int32[values]: `LANES_BIT` of the last dim of what lies so, else 0
    written  bool[ops]: the reshapes, each of which writes its result
    """

    marks: np.ndarray
    written: np.ndarray


def features_in_parts(program: Program, images: np.ndarray) -> FeaturesInParts:
    """What lies so in a program; `images` are marks of images (`image_layouts.py`)."""
    marks, written = np.zeros(program.value_count, np.int32), np.zeros(program.op_count, np.bool_)
    splits = np.array([_splits_features(spec) for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(splits).tolist():
        if images[_whole(program, int(program.operands_of(op)[0]))]:
            written[op] = _takes_parts(program, int(program.result_ptr[op]))
    results = program.result_ptr[:-1][written]
    marks[results] = [_last(program, int(value)) for value in results]
    if written.any():
        _follow(program, marks)
    return FeaturesInParts(marks, written)


def _whole(program: Program, value: int) -> int:
    """What a value is a slice of."""
    while _takes(program.spec(maker := int(program.value_op[value]))):
        value = int(program.operands_of(maker)[0])
    return value


def _last(program: Program, value: int) -> int:
    return LANES_BIT << len(program.type_of(value).shape) - 1


def _splits_features(spec: OpSpec) -> bool:
    """True for a view that makes dims of the last one, and leaves all others."""
    traits = traits_of(spec)
    if not isinstance(traits, View) or traits.fence or len(spec.operands) != 1:
        return False
    before, after = spec.operands[0].shape, spec.results[0].shape
    if 0 in before or len(after) <= len(before) or len(before) < 3 or min(after[len(before) - 1 :]) == 1:
        return False
    return before[:-1] == after[: len(before) - 1] and _wastes_little(after)


def _wastes_little(shape: tuple[int, ...]) -> bool:
    """True where the last two dims in layout tiles take little more than the two that waste least, of space too."""
    dims = np.array([n for n in shape[1:] if n > 1], np.float64)
    rank = len(dims)
    least = padded_elements(dims, rank, F32_BYTES, SUBLANES, LANES, 0)
    return padded_elements(dims, rank, F32_BYTES, SUBLANES, LANES, LANES_BIT << rank - 1) <= LIKED * least


def _takes_parts(program: Program, value: int) -> bool:
    """True where a part of the value is taken or summed, or of what is computed of it element by element."""
    shape, seen = program.type_of(value).shape, {value}
    left = [value]
    users, use = program.users
    while left:
        at = left.pop()
        for op in program.use_op[use[users[at] : users[at + 1]]].tolist():
            spec, result = program.spec(op), int(program.result_ptr[op])
            if _takes(spec) or sums_last(spec):
                return True
            if isinstance(traits_of(spec), Elementwise) and result not in seen and spec.results[0].shape == shape:
                seen.add(result)
                left.append(result)
    return False


def _takes(spec: OpSpec) -> bool:
    """True for a slice that leaves all dims but the last as they are."""
    traits = traits_of(spec)
    if not isinstance(traits, Slicing) or traits.indexed or not spec.operands:
        return False
    before, after = spec.operands[0].shape, spec.results[0].shape
    return len(before) == len(after) and before[:-1] == after[:-1] and before[-1] != after[-1]


def _follow(program: Program, found: np.ndarray) -> None:
    """Marks what is computed, taken or laid together of what is marked, with its last dim along the lanes."""
    follows = np.array([_may_follow(spec) for spec in program.specs], np.bool_)[program.op_spec]
    for op in np.flatnonzero(follows).tolist():
        result = int(program.result_ptr[op])
        read = program.operands_of(op)
        if found[result] or not found[read].any():
            continue
        shape = program.type_of(result).shape
        if any(_keeps_last(program.type_of(value).shape, shape) for value in read[found[read] > 0].tolist()):
            found[result] = _last(program, result)


def _may_follow(spec: OpSpec) -> bool:
    """True for an op of one array of several dims that computes, moves or takes elements of what it reads."""
    traits = traits_of(spec)
    if len(spec.results) != 1 or not spec.operands or len(spec.results[0].shape) < 2:
        return False
    if isinstance(traits, Slicing):
        return not traits.indexed
    return isinstance(traits, Elementwise) or (isinstance(traits, View) and not traits.fence)


def _keeps_last(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """True where the last dim, or a part of it, is still the last one."""
    if len(before) == len(after):
        return sum(a != b for a, b in zip(before, after, strict=True)) <= 1
    return before[-1] == after[-1] and [n for n in before if n > 1] == [n for n in after if n > 1]
