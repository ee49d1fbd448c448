"""What ops hand on: marks of values that go from what an op reads to what it makes, or back.

%a*  = dot_general ...        marked at first
%b*  = tanh %a                an op that hands marks on
%c   = reduce_sum %b          one that does not
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program


def follow_down(program: Program, follows: np.ndarray, counts: np.ndarray, marks: np.ndarray) -> None:
    """Marks what ops that follow make of marked values, those that count.

    follows   bool[ops]
    counts    bool[values]: what is looked at of what an op reads
    marks     bool[values]
    """
    _down(follows, program.operand_ptr, program.operands, program.result_ptr, counts, marks)


def follow_up(program: Program, follows: np.ndarray, counts: np.ndarray, marks: np.ndarray) -> None:
    """Marks what ops that follow read of what counts, where their first result is marked; as `follow_down`."""
    _up(follows, program.operand_ptr, program.operands, program.result_ptr, counts, marks)


def distinct_operands(program: Program, counts: np.ndarray) -> np.ndarray:
    """int32[ops]: how many values each reads, of those that count."""
    found, last = np.zeros(program.op_count, np.int32), np.full(program.value_count, -1, np.int32)
    _count(program.operand_ptr, program.operands, counts, last, found)
    return found


@kernel
def _down(
    follows: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    counts: np.ndarray,
    marks: np.ndarray,
) -> None:
    """See `follow_down`."""
    for op in range(follows.shape[0]):
        if follows[op]:
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                if counts[operands[use]] and marks[operands[use]]:
                    for value in range(result_ptr[op], result_ptr[op + 1]):
                        marks[value] = True


@kernel
def _up(
    follows: np.ndarray,
    operand_ptr: np.ndarray,
    operands: np.ndarray,
    result_ptr: np.ndarray,
    counts: np.ndarray,
    marks: np.ndarray,
) -> None:
    """See `follow_up`."""
    for op in range(follows.shape[0] - 1, -1, -1):
        if follows[op] and marks[result_ptr[op]]:
            for use in range(operand_ptr[op], operand_ptr[op + 1]):
                if counts[operands[use]]:
                    marks[operands[use]] = True


@kernel
def _count(
    operand_ptr: np.ndarray, operands: np.ndarray, counts: np.ndarray, last: np.ndarray, found: np.ndarray
) -> None:
    """Fills in found[op], 0 at first. Scratch: last, -1 at first: the op by which each value was counted last."""
    for op in range(found.shape[0]):
        for use in range(operand_ptr[op], operand_ptr[op + 1]):
            if counts[operands[use]] and last[operands[use]] != op:
                last[operands[use]] = op
                found[op] += 1
