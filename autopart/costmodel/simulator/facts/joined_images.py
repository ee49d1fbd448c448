"""Images of several tasks that become the images of one convolution: written anew where they lie along the lanes.

    %y = convolution %x, %w      windows of their own for each of 4 tasks: 100 images of a task along 128 lanes
    %j = reshape %y              f32[4,100,14,14,64] as f32[400,14,14,64]: 400 images along 512 lanes
    %z = convolution %j, %v      the same windows for all: %j is copied as bf16, 188 us on a v5e

    %s = add %a, %b              of two such reshapes, each of f32[400,14,14,64]: added before them, as 400 images. What
                                 a convolution in groups left, be it as 400 images, lies as 4 x 100: it is copied

Where features lie along the lanes, or the images of a task fill them, %j is %y's memory. What a convolution left as the
images of all tasks is copied for each task without cycles of its own, but is held twice as long as it is needed. Found
with libtpu 0.0.51 on v5e: ten programs of 4 to 8 tasks, 32 to 128 images of each and 32 to 128 features, and learning
to learn.
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.ops.groups_as_one import is_in_groups
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Elementwise, View
from autopart.core.program import Program

DIMS = 16
"""More than a value has dims: `joined` counts in these."""


def _of_tasks(program: Program) -> np.ndarray:
    """bool[values]: what convolutions in groups leave, and what is computed of it for all its elements."""
    found = np.zeros(program.value_count, np.bool_)
    if not any(is_in_groups(spec) for spec in program.specs):
        return found
    elements = program.value_shape.prod(axis=1)
    for op in range(program.op_count):
        first, end, results = program.operand_ptr[op], program.operand_ptr[op + 1], program.results_of(op)
        if len(results) != 1:
            continue
        spec, result = program.spec(op), results[0]
        if isinstance(traits_of(spec), (Elementwise, View)):
            read = program.operands[first:end]
            found[result] = (found[read] & (elements[read] == elements[result])).any()
        else:
            found[result] = is_in_groups(spec)
    return found


def around_tasks(program: Program) -> np.ndarray:
    """bool[values]: the same, and what convolutions in groups read, with what that is computed of."""
    found = _of_tasks(program)
    if not found.any():
        return found
    elements = program.value_shape.prod(axis=1)
    for op in reversed(range(program.op_count)):
        spec, results = program.spec(op), program.results_of(op)
        read = program.operands_of(op)
        if is_in_groups(spec):
            found[read] = True
        elif len(results) == 1 and isinstance(traits_of(spec), (Elementwise, View)) and found[results[0]]:
            found[read[elements[read] == elements[results[0]]]] = True
    return found


def joined_images(program: Program) -> np.ndarray:
    """int32[uses]: of what a convolution reads as the images of all tasks, and each task left alone: the place of the
    dim that counts its images, and of its features, in `DIMS`; 0 for all other uses."""
    found, of_tasks = np.zeros(len(program.operands), np.int32), _of_tasks(program)
    if not of_tasks.any():
        return found
    seen = set[int]()
    convolves = np.array([isinstance(traits_of(spec), Convolution) for spec in program.specs], np.bool_)
    for op in np.flatnonzero(convolves[program.op_spec]).tolist():
        spec, first = program.spec(op), int(program.operand_ptr[op])
        numbers = spec.attributes["dimension_numbers"]
        sides = (
            (numbers["input_batch_dimension"], numbers["input_feature_dimension"]),
            (numbers["kernel_input_feature_dimension"], numbers["kernel_output_feature_dimension"]),
        )
        for side, dims in enumerate(sides):
            joined, is_reversed = _joined(program, int(program.operands[first + side]))
            if joined < 0 or joined in seen or not of_tasks[joined] or is_reversed != is_in_groups(spec):
                continue
            at = _first_joined(program, joined)
            if at in dims:
                seen.add(joined)
                other = dims[0] if at == dims[1] else dims[1]
                found[first + side] = DIMS * (at + 1) + other + (other > at)
    return found


def added_images(program: Program) -> np.ndarray:
    """int32[uses]: the same of what a convolution in groups leaves as the images of all tasks, where that is added,
    element by element, to what one without groups leaves so, both behind a view that splits them."""
    found = np.zeros(len(program.operands), np.int32)
    if not any(is_in_groups(spec) for spec in program.specs):
        return found
    two = (np.diff(program.operand_ptr) == 2) & np.array(
        [isinstance(traits_of(spec), Elementwise) for spec in program.specs], np.bool_
    )[program.op_spec]
    for op in np.flatnonzero(two).tolist():
        first = int(program.operand_ptr[op])
        sides = [_split(program, int(program.operands[first + side])) for side in range(2)]
        if min(sides) < 0 or len({program.type_of(int(program.results_of(side)[0])).shape for side in sides}) > 1:
            continue
        grouped = [is_in_groups(program.spec(side)) for side in sides]
        if grouped[0] == grouped[1]:
            continue
        numbers = program.spec(sides[grouped.index(True)]).attributes["dimension_numbers"]
        dims = numbers["output_batch_dimension"], numbers["output_feature_dimension"]
        at = _first_split(program, int(program.operands[first]))
        if at in dims:
            other = dims[0] if at == dims[1] else dims[1]
            found[first + grouped.index(True)] = DIMS * (at + 1) + other + (other > at)
    return found


def split_images(program: Program) -> np.ndarray:
    """int32[values]: the same of what a convolution without groups leaves as the images of all tasks, with dims of the
    view that splits these, where it, or what is computed of it, is read together with what one in groups left."""
    found, of_tasks = np.zeros(program.value_count, np.int32), _of_tasks(program)
    if not of_tasks.any():
        return found
    meets = _meets_tasks(program, of_tasks)
    for op in range(program.op_count):
        results = program.results_of(op)
        maker = _split(program, results[0]) if len(results) == 1 and meets[results[0]] else -1
        if maker < 0 or is_in_groups(program.spec(maker)):
            continue
        numbers, at = program.spec(maker).attributes["dimension_numbers"], _first_split(program, results[0])
        dims = numbers["output_batch_dimension"], numbers["output_feature_dimension"]
        if at in dims:
            other = dims[0] if at == dims[1] else dims[1]
            found[program.results_of(maker)[0]] = DIMS * (at + 1) + other + (other > at)
    return found


def _meets_tasks(program: Program, of_tasks: np.ndarray) -> np.ndarray:
    """bool[values]: all its elements go on, element by element, into what is of tasks, but it is not so itself."""
    found, elements = np.zeros(program.value_count, np.bool_), program.value_shape.prod(axis=1)
    for op in range(program.op_count - 1, -1, -1):
        results = program.results_of(op)
        if len(results) == 1 and isinstance(traits_of(program.spec(op)), (Elementwise, View)):
            read = program.operands_of(op)
            if of_tasks[results[0]] or found[results[0]]:
                found[read[(elements[read] == elements[results[0]]) & ~of_tasks[read]]] = True
    return found


def _split(program: Program, value: int) -> int:
    """The convolution of which a value is a view that splits one dim in two; -1 where it is none."""
    view = int(program.value_op[value])
    if not isinstance(traits_of(program.spec(view)), View) or _first_split(program, value) < 0:
        return -1
    maker = int(program.value_op[program.operands[program.operand_ptr[view]]])
    return maker if isinstance(traits_of(program.spec(maker)), Convolution) else -1


def _first_split(program: Program, view: int) -> int:
    """The dim of a view's operand that lies in two dims of the view; -1 where there is none."""
    spec = program.spec(int(program.value_op[view]))
    return _one_joined(spec.results[0].shape, spec.operands[0].shape) if len(spec.operands) == 1 else -1


def joined_arrays(program: Program, joined: np.ndarray) -> np.ndarray:
    """bool[values]: what is written so, and what it is copied from; `joined` is of `joined_images`."""
    found = np.zeros(program.value_count, np.bool_)
    for use in np.flatnonzero(joined).tolist():
        value, _ = _joined(program, int(program.operands[use]))
        found[value] = True
    return found


def _joined(program: Program, value: int) -> tuple[int, bool]:
    """The view that puts two dims together behind what a convolution reads, -1 for none; whether it is reversed."""
    maker, is_reversed = int(program.value_op[value]), False
    traits = traits_of(program.spec(maker))
    if isinstance(traits, Elementwise) and traits.reverses:
        value, is_reversed = int(program.operands[program.operand_ptr[maker]]), True
        traits = traits_of(program.spec(int(program.value_op[value])))
    is_joined = isinstance(traits, View) and not traits.fence and _first_joined(program, value) >= 0
    return (value, is_reversed) if is_joined else (-1, False)


def _first_joined(program: Program, view: int) -> int:
    """The dim of a view in which two dims of its operand lie, all others being dims of it; -1 where there is none."""
    spec = program.spec(int(program.value_op[view]))
    return _one_joined(spec.operands[0].shape, spec.results[0].shape) if len(spec.operands) == 1 else -1


def _one_joined(apart: tuple[int, ...], joined: tuple[int, ...]) -> int:
    """The dim of a shape in which two of another lie, where all others are the same; -1 where there is none."""
    if len(apart) != len(joined) + 1:
        return -1
    at = next((d for d, size in enumerate(joined) if size != apart[d]), -1)
    is_one = at >= 0 and apart == (*joined[:at], *apart[at : at + 2], *joined[at + 1 :])
    is_one = is_one and math.prod(apart[at : at + 2]) == joined[at]
    return at if is_one else -1
