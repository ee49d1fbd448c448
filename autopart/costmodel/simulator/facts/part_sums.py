"""Sums over parts of features that a product's kernel cannot make, since its blocks of columns do not hold whole parts.

    %y = dot_general %x, %w      f32[6144,320]
    %p = reshape %y              f32[6144,8,40]
    %s = reduce %p               f32[6144,8]      a kernel of its own, which reads %y; of f32[6144,8,64] the product's

The product makes it, too, where parts are of 8 columns, and where parts and columns are powers of two, of which there
are 2,048 at most. So it was on v3 and v5e in all of 130 programs of one product and one sum (libtpu 0.0.51), but for 3
parts of 64.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Reduction, View
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.followed_layouts import follow_layouts

SUBLANES = 8

MOST_COLUMNS = 2048


def part_sums(program: Program, op_class: np.ndarray) -> np.ndarray:
    """bool[ops]: reductions over parts that are not whole in a block of columns; `op_class` is that of each op."""
    splits, sums = (
        np.array([test(spec) for spec in program.specs], np.bool_)[program.op_spec] for test in (_splits, sums_last)
    )
    found = np.zeros(program.op_count, np.bool_)
    if splits.any() and sums.any():
        marks = np.zeros(program.value_count, np.int32)
        marks[program.result_ptr[:-1][splits]] = 1
        follow_layouts(program, op_class, marks)
        found[sums] = marks[program.operands[program.operand_ptr[:-1][sums]]] > 0
    return found


def _splits(spec: OpSpec) -> bool:
    """True for a view that makes two dims of the last one, of which the second is not whole in a block."""
    traits = traits_of(spec)
    if not isinstance(traits, View) or traits.fence or len(spec.operands) != 1:
        return False
    before, after = spec.operands[0].shape, spec.results[0].shape
    if len(after) != len(before) + 1 or before[:-1] != after[:-2] or after[-1] in (1, SUBLANES) or after[-2] == 1:
        return False
    columns = before[-1]
    return columns > MOST_COLUMNS or bool(columns & (columns - 1)) or bool(after[-1] & (after[-1] - 1))


def sums_last(spec: OpSpec) -> bool:
    """True for a reduction over the last dim alone."""
    if not isinstance(traits_of(spec), Reduction) or not spec.operands:
        return False
    return spec.operands[0].shape[:-1] == spec.results[0].shape
