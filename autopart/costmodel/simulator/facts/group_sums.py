"""Sums over groups of features and other dims: the compiler sums each feature first, and then the features of a group.

    %g = reshape %x             f32[8,16,16,160] as f32[8,16,16,16,10]
    %d = subtract %g %mean      elementwise ops on the way
    %s = reduce_sum %d          over space and groups, f32[8,16]: a kernel that leaves f32[8,160], and one of 1.4 us

Features stay along the lanes, whatever the reshape says. Found with libtpu 0.0.51 on v5e, in norms over groups of
images and of sequences; a sum over the features of a group alone is one kernel.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
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
    _follow(program.operand_ptr, program.operands, program.result_ptr, program.value_rank, op_class, splits, grouped)
    reductions = np.flatnonzero((op_class == REDUCE) & (np.diff(program.operand_ptr) > 0))
    dims = grouped[program.operands[program.operand_ptr[reductions]]]
    reductions, dims = reductions[dims > 0], dims[dims > 0]
    known: dict[tuple[int, int], bool] = {}
    for op, key in zip(
        reductions.tolist(), zip(program.op_spec[reductions].tolist(), dims.tolist(), strict=True), strict=True
    ):
        if key not in known:
            known[key] = _leaves_groups(program.specs[key[0]], key[1])
        found[op] = known[key]
    return found


@kernel
def _follow(
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    rank: np.ndarray,
    op_class: np.ndarray,
    splits: np.ndarray,
    grouped: np.ndarray,
) -> None:
    """Fills in grouped[value], 0 at first: how many of its last dims are groups of features and the features of one."""
    for op in range(op_class.shape[0]):
        value = result_ptr[op]
        if result_ptr[op + 1] - value != 1 or op_class[op] == REDUCE:
            continue
        if splits[op] > 0:
            grouped[value] = splits[op]
        elif op_class[op] == ELEMENTWISE:
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                if rank[operands[use]] == rank[value]:
                    grouped[value] = max(grouped[value], grouped[operands[use]])


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
