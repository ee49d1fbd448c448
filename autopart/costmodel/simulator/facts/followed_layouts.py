"""What is computed of marked arrays element by element is marked as they are."""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE


def follow_layouts(program: Program, op_class: np.ndarray, marks: np.ndarray) -> None:
    """Marks what is computed of marked values: marks is int32[values], 0 for none. `op_class` is that of each op."""
    if marks.any():
        _follow(
            program.result_ptr, program.operand_ptr, program.operands, program.value_shape, program.value_rank,
            op_class, marks,
        )  # fmt: skip


@kernel
def _follow(
    result_ptr: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    shape: np.ndarray,
    rank: np.ndarray,
    op_class: np.ndarray,
    marks: np.ndarray,
) -> None:
    """Carries marks from operands to results of the same shape, in the order of the program."""
    for op in range(op_class.shape[0]):
        result = result_ptr[op]
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
