"""Sums over groups of features and other dims: the compiler sums each feature first, and then the features of a group.

    %g = reshape %x             f32[8,16,16,160] as f32[8,16,16,16,10]
    %d = subtract %g %mean      elementwise ops on the way
    %s = reduce_sum %d          over space and groups, f32[8,16]: a kernel that leaves f32[8,160], and one of 1.4 us

Features stay along the lanes, whatever the reshape says. Found with libtpu 0.0.51 on v5e, in norms over groups of
images and of sequences; a sum over the features of a group alone is one kernel.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import View
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE, REDUCE


def group_sums(program: Program, op_class: np.ndarray) -> np.ndarray:
    """bool[ops]: reductions of two kernels. `op_class` is that of each op."""
    found, grouped = np.zeros(program.op_count, np.bool_), np.zeros(program.value_count, np.int32)
    splits = np.array([_groups(spec) for spec in program.specs], np.int32)[program.op_spec]
    if not splits.any():
        return found
    for op in np.flatnonzero((splits > 0) | (op_class == ELEMENTWISE) | (op_class == REDUCE)).tolist():
        read = program.operands[program.operand_ptr[op] : program.operand_ptr[op + 1]]
        first = int(program.result_ptr[op])
        if op_class[op] == REDUCE:
            found[op] = bool(grouped[read[0]]) and _leaves_groups(program.spec(op), int(grouped[read[0]]))
        elif program.result_ptr[op + 1] - first == 1:
            alike = read[program.value_rank[read] == program.value_rank[first]]
            grouped[first] = splits[op] or grouped[alike].max(initial=0)
    return found


def _groups(spec: OpSpec) -> int:
    """How many dims a view makes of the last one; 0 if it keeps that."""
    if not isinstance(traits_of(spec), View) or len(spec.operands) != 1 or not spec.operands[0].shape:
        return 0
    features, made, dims = spec.operands[0].shape[-1], 1, 0
    for size in reversed(spec.results[0].shape):
        made, dims = made * size, dims + 1
        if made >= features:
            break
    return dims if made == features and dims > 1 else 0


def _leaves_groups(spec: OpSpec, dims: int) -> bool:
    """True if a reduction sums over some of the last `dims` and over dims before them, and leaves one of the last."""
    shape, kept = spec.operands[0].shape, set[int]()
    for mapping in mappings_of(spec) or ():
        if 0 <= mapping.results[0] < len(spec.results[0].shape):
            kept.add(mapping.operands[0])
    summed = {d for d in range(len(shape)) if shape[d] > 1 and d not in kept}
    groups = set(range(len(shape) - dims, len(shape)))
    return bool(summed & groups) and bool(summed - groups) and any(shape[d] > 1 for d in kept & groups)
