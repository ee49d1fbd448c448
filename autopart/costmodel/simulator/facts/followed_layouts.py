"""What is computed of an array element by element lies in memory as it does.

    %s = dot_general %q, %k      f32[2048,3,49,49]     its layout is that of a product's result
    %e = exponential %s                                the same
    %r = reshape %e              f32[1,2048,3,49,49]   the same: only dims of one element come, go, or change places
    %t = transpose %s            f32[2048,49,3,49]     the same memory; but an output lies as any array

Which dims lie along the tiles is decided where a value is made so (`batch_layouts.py`, `row_layouts.py`).
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.op import MAX_RANK, OpSpec
from autopart.core.ops.rule import mappings_of, traits_of
from autopart.core.ops.traits import Elementwise, View
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE
from autopart.costmodel.simulator.sizes import ALONE_BIT, LANES_BIT, SHORT_BIT

ONE_DIM = LANES_BIT | 1
"""What a mark of a value's first dim may have."""


def follow_layouts(program: Program, op_class: np.ndarray, marks: np.ndarray, of_dims: bool = False) -> None:
    """Marks what has the layout of marked values, as these are: marks is int32[values], 0 for none.

    `op_class` is that of each op. `of_dims`: a mark has a bit for each dim, and goes through ops that move no element,
    transposes among them.
    """
    if not marks.any():
        return
    stays, turns = np.zeros(program.op_count, np.bool_), np.full((program.op_count, 1), -1, np.int8)
    if of_dims:
        stays = np.array([_moves_nothing(spec) for spec in program.specs], np.bool_)[program.op_spec]
        turns = np.array([_turned(spec) for spec in program.specs], np.int8)[program.op_spec]
        turns[program.value_op[program.outputs]] = -1
    _follow(
        program.result_ptr, program.operand_ptr, program.operands, program.value_shape, program.value_rank,
        op_class, stays, turns, marks,
    )  # fmt: skip


def _turned(spec: OpSpec) -> list[int]:
    """Where each dim of the operand goes in a transpose; -1 first for any other op."""
    traits = traits_of(spec)
    if not isinstance(traits, Elementwise) or traits.turns is None or traits.weight or len(spec.operands) != 1:
        return [-1] * MAX_RANK
    to = {m.operands[0]: m.results[0] for m in mappings_of(spec) or () if m.operands[0] >= 0}
    rank = len(spec.operands[0].shape)
    of_one = iter(sorted(set(range(rank)) - set(to.values())))
    return [to[d] if d in to else next(of_one) for d in range(rank)] + [-1] * (MAX_RANK - rank)


def _moves_nothing(spec: OpSpec) -> bool:
    """True where a reshape or transpose leaves all dims but those of one element, in their order."""
    if len(spec.operands) != 1 or len(spec.results) != 1:
        return False
    traits, (operand,), (result,) = traits_of(spec), spec.operands, spec.results
    is_view = isinstance(traits, View) and not traits.fence
    if not is_view and not (isinstance(traits, Elementwise) and traits.weight == 0):
        return False
    kept = [[d for d, size in enumerate(of.shape) if size > 1] for of in (operand, result)]
    pairs = {(m.operands[0], m.results[0]) for m in mappings_of(spec) or ()}
    return len(kept[0]) == len(kept[1]) and pairs.issuperset(zip(*kept, strict=True))


@kernel
def _follow(
    result_ptr: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    shape: np.ndarray,
    rank: np.ndarray,
    op_class: np.ndarray,
    stays: np.ndarray,
    turns: np.ndarray,
    marks: np.ndarray,
) -> None:
    """Carries marks from operands to results of the same shape, in the order of the program.

    stays[op]   the shape is the same but for dims of one element
    turns[op]   where each dim of its operand goes, if the op is a transpose, else -1 first
    """
    for op in range(op_class.shape[0]):
        result = result_ptr[op]
        if turns[op, 0] >= 0 and not marks[result]:
            value = operands[operand_ptr[op]]
            marks[result] = marks[value] & (ALONE_BIT | SHORT_BIT)
            for d in range(rank[value]):
                marks[result] |= (marks[value] >> d & ONE_DIM) << turns[op, d]
            continue
        if stays[op] and not marks[result]:
            value, at = operands[operand_ptr[op]], 0
            marks[result] = marks[value] & (ALONE_BIT | SHORT_BIT)
            for d in range(rank[value]):
                if shape[value, d] > 1:
                    while shape[result, at] == 1:
                        at += 1
                    marks[result] |= (marks[value] >> d & ONE_DIM) << at
                    at += 1
            continue
        if op_class[op] != ELEMENTWISE or marks[result]:
            continue
        for use in range(operand_ptr[op], operand_ptr[op + 1]):
            value = operands[use]
            alike = marks[value] and rank[value] == rank[result]
            for d in range(rank[result] if alike else 0):
                alike = alike and shape[value, d] == shape[result, d]
            if alike:
                marks[result] = marks[value]
                break
