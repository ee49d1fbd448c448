"""Rows from which something of the row itself is taken: XLA:TPU makes one kernel of the reduction and what follows it.

    %m = reduce_max %x          f32[4,256] of f32[4,256,8192], and nothing else reads it
    %h = subtract %x, %m        written once, where several kernels read it: none of them goes back to %x
    %s = reduce_sum (exp %h)    in the kernel that writes %h
    %p = subtract %h, log %s    so too, in one of its own, if nothing but %p reads %s: without a backward pass

Such a kernel has a tile of whole rows, and what is on the chip feeds it as fast as it computes. Found with libtpu
0.0.51 on v5e, in softmaxes over arrays of three dims or more and rows of up to 8,192 elements that are on one device;
not if %x was just widened, nor if a look-up reads %h, which it then takes from %x. Scores of heads: `softmax_rows.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.core.program import Program
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.simulator.facts.head_copies import batch_dims
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE, EXPENSIVE, FREE, MATMUL, REDUCE, SLICING

LEAST_DIMS = 3
"""Arrays of fewer dims are not reduced so."""

LONGEST_ROW = 8192
"""Elements of the longest row."""

ROW_PASSES = 1.75
"""How often the bytes that pass HBM do so at its rate: 1.4 times where rows are on the chip before, else 2.2."""


class RowKernels(NamedTuple):
    """What is found in a program.

    shifted   int32[values]: its exponentials, or these over their sum; it is written where several kernels compute it
              or that. -1 for other values
    inside    int32[ops]: of an op of such a kernel what the reduction leaves, else -1
    """

    shifted: np.ndarray
    inside: np.ndarray


def row_kernels(program: Program, op_class: np.ndarray, weight: np.ndarray, in_one: bool) -> RowKernels:
    """Those of a program; `op_class` and `weight` are of its ops. None are found unless `in_one`."""
    found = RowKernels(np.full(program.value_count, -1, np.int32), np.full(program.op_count, -1, np.int32))
    expensive = (op_class == ELEMENTWISE) & (weight >= EXPENSIVE)
    rows = np.flatnonzero(in_one & (op_class == REDUCE) & (np.diff(program.result_ptr) == 1))
    array = program.operands[program.operand_ptr[rows]]
    long = program.value_shape[array].max(axis=1, initial=0) <= LONGEST_ROW
    one = program.value_rank[program.result_ptr[rows]] == program.value_rank[array] - 1
    of_heads: dict[int, bool] = {}
    for op in rows[(program.value_rank[array] >= LEAST_DIMS) & one & long].tolist():
        _follow(program, op_class, expensive, op, found, of_heads)
    return found


@kernel
def is_of_rows(program: ProgramArrays, local: LocalArrays, op: int) -> bool:
    """True for an op of such a kernel, of which a device has whole rows."""
    row = program.ops.of_rows[op]
    if row < 0:
        return False
    use = program.operand_ptr[program.values.value_op[row]]
    whole = program.values.elements[program.uses.operands[use]] / program.values.elements[row]
    return local.uses.use_elements[use] >= whole * local.values.native_elements[row]


def _follow(
    program: Program, op_class: np.ndarray, expensive: np.ndarray, op: int, found: RowKernels, of_heads: dict[int, bool]
) -> None:
    """Notes the kernel of one reduction, if there is one; `of_heads` as in `_of_heads`."""
    array, row = int(_reads(program, op)[0]), int(program.result_ptr[op])
    maker = int(program.value_op[array])
    source = _reads(program, maker)
    if (program.element_bytes[source] < program.element_bytes[array]).any():
        return
    by, changed = _taken_by(program, op_class, expensive, row, source if expensive[maker] else np.array([array]))
    if by < 0 or changed != expensive[maker] or _of_heads(program, op_class, array, of_heads):
        return
    taken = int(program.result_ptr[by])
    if expensive[maker]:
        found.inside[by] = row
        return
    users = _users(program, taken)
    if (op_class[users] == SLICING).any():
        return
    for user in users[expensive[users]].tolist():
        summed = _users(program, int(program.result_ptr[user]))
        for total in summed[op_class[summed] == REDUCE].tolist():
            found.inside[by] = found.inside[user] = found.inside[total] = row
            found.shifted[taken] = _probabilities(program, op_class, expensive, int(program.result_ptr[user]), total)


def _probabilities(program: Program, op_class: np.ndarray, expensive: np.ndarray, exponentials: int, total: int) -> int:
    """What exponentials over their sum are, if nothing else reads these, else the exponentials."""
    by, _ = _taken_by(program, op_class, expensive, int(program.result_ptr[total]), np.array([exponentials]))
    users = set(_users(program, exponentials).tolist())
    return int(program.result_ptr[by]) if users == {by, total} else exponentials


def _taken_by(
    program: Program, op_class: np.ndarray, expensive: np.ndarray, row: int, arrays: np.ndarray
) -> tuple[int, bool]:
    """The op that takes what is left of each row from one of the arrays, -1 if others read it, too; whether what is
    expensive is computed of it before. The way ends where a loop's carry is set, which an op before it reads."""
    changed, wanted = False, set(arrays.tolist())
    while True:
        users = _users(program, row)
        if len(users) != 1 or users[0] <= program.value_op[row] or op_class[users[0]] not in (ELEMENTWISE, FREE):
            return -1, False
        op = int(users[0])
        if not wanted.isdisjoint(_reads(program, op).tolist()):
            return op, changed
        row, changed = int(program.result_ptr[op]), changed or bool(expensive[op])


def _of_heads(program: Program, op_class: np.ndarray, value: int, known: dict[int, bool]) -> bool:
    """True if a value is computed from a product with batch dims, element by element.

    `known` has what was found of ops on the way: a residual stream is followed back once, not from every layer.
    """
    op, way, size = int(program.value_op[value]), list[int](), program.value_shape[value].prod()
    while op not in known:
        way.append(op)
        if op_class[op] not in (ELEMENTWISE, FREE):
            known[op] = bool(op_class[op] == MATMUL and batch_dims(program.spec(op)) > 0)
            break
        read = _reads(program, op)
        alike = read[program.value_shape[read].prod(axis=1) == size]
        if not len(alike):
            known[op] = False
            break
        op = int(program.value_op[alike[0]])
    known.update(dict.fromkeys(way, known[op]))
    return known[op]


def _users(program: Program, value: int) -> np.ndarray:
    """The ops that read a value."""
    pointer, users = program.users
    return program.use_op[users[pointer[value] : pointer[value + 1]]]


def _reads(program: Program, op: int) -> np.ndarray:
    """The values that an op reads."""
    return program.operands[program.operand_ptr[op] : program.operand_ptr[op + 1]]
