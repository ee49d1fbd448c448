"""Groups of a convolution that are one on a TPU: what is emitted for them.

    %y = convolution %x, %w      f32[16,14,14,256], 32 groups of 8 features; %w f32[3,3,8,256]

    %r = concatenate %w, ..., %w      16 times: f32[3,3,128,256]
    %k = select %same, %r, 0          what features are made of are those of their own group
    %y = convolution %x, %k           2 groups of 128 features

    %g = convolution %x, %dy     the gradient of %k: of 16 groups with each other, f32[3,3,128,256]
    %g = reduce (select %same, %g, 0)      of each group with itself: f32[3,3,8,256]

How many are one is in `core/ops/groups_as_one.py`. What is not finite reaches the other groups of its tile, as it does
where XLA expands groups for devices that have none.
"""

from __future__ import annotations

import math

import numpy as np

from autopart.core.doors.jax_internals import ir
from autopart.core.mlir_values import MlirValues, i64, mlir_type
from autopart.core.op import SUM, OpSpec, TensorType
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.groups_as_one import group_counts, merged
from autopart.spmd.emission.reductions import reduced


def merge_groups(convolution: ir.Operation, of_tasks: bool) -> None:
    """Rewrites a convolution on one device's shapes, if groups of it are one."""
    spec = spec_of(convolution)
    features, images = group_counts(spec)
    if features > 1:
        _merge_features(convolution, spec, features, of_tasks)
    elif images > 1:
        _merge_images(convolution, spec, images, of_tasks)


def _merge_features(convolution: ir.Operation, spec: OpSpec, groups: int, of_tasks: bool) -> None:
    """The kernel as one of larger groups, with zeros in it."""
    numbers, (lhs, rhs) = spec.attributes["dimension_numbers"], spec.operands
    inner, columns = numbers["kernel_input_feature_dimension"], numbers["kernel_output_feature_dimension"]
    reads, makes, images = rhs.shape[inner], rhs.shape[columns] // groups, lhs.shape[numbers["input_batch_dimension"]]
    each = merged(groups, reads, makes, images, math.prod(lhs.shape) // (groups * reads), of_tasks)
    if each == 1:
        return
    with ir.InsertionPoint(convolution), convolution.location:
        values = MlirValues()
        repeated = values.concatenate([convolution.operands[1]] * each, inner)
        convolution.operands[1] = _own(values, repeated, inner, reads, columns, makes, each)
        convolution.attributes["feature_group_count"] = i64(groups // each)


def _merge_images(convolution: ir.Operation, spec: OpSpec, groups: int, of_tasks: bool) -> None:
    """The gradient of a kernel out of that of larger groups, of which it is the part of each group with itself."""
    numbers, lhs, result = spec.attributes["dimension_numbers"], spec.operands[0], spec.results[0]
    inner, columns = numbers["output_batch_dimension"], numbers["output_feature_dimension"]
    reads, makes = result.shape[inner], result.shape[columns] // groups
    images, places = lhs.shape[numbers["input_feature_dimension"]], math.prod(lhs.shape) // (groups * reads)
    each = merged(groups, reads, makes, images, places, of_tasks)
    if each == 1:
        return
    before, after = result.shape[:inner], result.shape[inner + 1 :]
    gradient = convolution.results[0]
    readers = [(use.owner, use.operand_number) for use in gradient.uses]
    gradient.set_type(mlir_type(TensorType((*before, each * reads, *after), result.dtype)))
    convolution.attributes["batch_group_count"] = i64(groups // each)
    with ir.InsertionPoint.after(convolution), convolution.location:
        values = MlirValues()
        own = _own(values, gradient, inner, reads, columns, makes, each)
        own = reduced(values.reshape(own, (*before, each, reads, *after)), inner, SUM)
    for reader, operand in readers:
        reader.operands[operand] = own


def _own(values: MlirValues, kernel: ir.Value, inner: int, reads: int, columns: int, makes: int, each: int) -> ir.Value:
    """A kernel of larger groups, zero where features are made of those of another group.

    inner, columns  its dims of the features that are read and made; reads, makes: how many of them are one group's
    each            groups that are one
    """
    type_ = values.type_of(kernel)

    def group(dim: int, size: int) -> ir.Value:
        numbers = np.arange(type_.shape[dim]) // size % each
        return values.broadcast(values.constant(numbers, "i32", numbers.shape), type_.shape, [dim])

    zeros = values.broadcast(values.constant(0, type_.dtype), type_.shape)
    return values.select(values.compare(group(inner, reads), group(columns, makes), "EQ"), kernel, zeros)
