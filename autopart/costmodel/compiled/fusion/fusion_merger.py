"""Which elementwise kernels are merged into all that read their results: XLA's `FusionMerger`, as it is on TPUs.

    %y = add %a (tanh %b)     two kernels read %y: each reads %a and %b instead, 4 arrays; with %y written it is 2 to
                              make it, 1 to write it and 2 to read it. So it is merged; into three readers it is 6 and 6
    %y = add %a (b c)         three arrays: into two readers 6 and 6, into three 9 and 7, where %y is written

What a reader reads anyway counts nothing, so that the derivatives of a network along its input, all made of the same
few products, are computed wherever they are read. Last readers come first, since what they are merged into reads more.

An op that is a kernel by itself, the sum of two arrays, is no fusion that could be merged; a product's is not, either.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import UPDATE
from autopart.costmodel.compiled.fusion.expression_leaves import (
    MOST_LEAVES,
    UNKNOWN,
    Leaves,
    add_leaf,
    end_of,
    read_leaves,
)

MOST_KERNELS = 16
"""Kernels that read a value, at most, if it is merged."""


@kernel
def merge(
    program: ProgramArrays,
    local: LocalArrays,
    leaves: Leaves,
    able: np.ndarray,
    meets: np.ndarray,
    may: np.ndarray,
    away: np.ndarray,
    ends: np.ndarray,
    behind: np.ndarray,
) -> None:
    """Sets away[value] of the values that `may` be merged and are; with them of what they are a view of.

    able, meets, away: as in `Fused`. Scratch, as int32[`MOST_KERNELS`]: `ends`, the kernels
    that read a value; `behind`, what they compute of it.
    """
    for value in range(may.shape[0] - 1, -1, -1):
        if not may[value]:
            continue
        count = _kernels(program, able, meets, away, value, ends, behind)
        if count > MOST_KERNELS:
            continue
        for k in range(count):
            if leaves.filled[_first_result(program, ends[k])] == UNKNOWN:
                read_leaves(program, local, leaves, away, ends[k] - may.shape[0])
        if not _moves_less(program, local, leaves, value, ends, count):
            continue
        for k in range(count):
            _replace(program, local, leaves, value, ends[k])
        away[value], op = True, program.values.value_op[value]
        while program.ops.is_view[op]:
            shown = program.uses.operands[program.operand_ptr[op]]
            away[shown], op = True, program.values.value_op[shown]


@kernel
def _kernels(
    program: ProgramArrays,
    able: np.ndarray,
    meets: np.ndarray,
    away: np.ndarray,
    value: int,
    ends: np.ndarray,
    behind: np.ndarray,
) -> int:
    """How many kernels read a value, itself or in what they compute of it; fills in the first of `ends`. More than
    `MOST_KERNELS` where there are, and where one writes into another array: its value is written by what makes it."""
    count, waiting = 0, 1
    behind[0] = value
    while waiting > 0:
        waiting -= 1
        read = behind[waiting]
        for i in range(program.user_ptr[read], program.user_ptr[read + 1]):
            end = end_of(program, able, meets, program.uses.use_op[program.user[i]])
            if end < away.shape[0] and away[end] and waiting < MOST_KERNELS:
                behind[waiting] = end
                waiting += 1
                continue
            if end >= away.shape[0] and program.ops.op_class[end - away.shape[0]] == UPDATE:
                return MOST_KERNELS + 1
            known = False
            for k in range(count):
                known = known or ends[k] == end
            if not known and count == MOST_KERNELS:
                return MOST_KERNELS + 1
            if not known:
                ends[count] = end
                count += 1
    return count


@kernel
def _moves_less(
    program: ProgramArrays, local: LocalArrays, leaves: Leaves, value: int, ends: np.ndarray, count: int
) -> bool:
    """True if no more bytes are moved where each of so many kernels reads what the value is made of."""
    held = local.values.native_elements[value] * program.values.element_bytes[value]
    made, more = leaves.small[value], leaves.small[value] * count
    for i in range(leaves.filled[value]):
        made += leaves.bytes[value, i]
        for k in range(count):
            if not _reads(leaves, _first_result(program, ends[k]), leaves.buffer[value, i]):
                more += leaves.bytes[value, i]
    return leaves.filled[value] < MOST_LEAVES and more <= made + held * (1 + count)


@kernel
def _first_result(program: ProgramArrays, end: int) -> int:
    """Where the leaves of a kernel stand."""
    values = program.values.shape[0]
    return end if end < values else int(program.result_ptr[end - values])


@kernel
def _reads(leaves: Leaves, value: int, buffer: int) -> bool:
    found = False
    for i in range(leaves.filled[value]):
        found = found or leaves.buffer[value, i] == buffer
    return found


@kernel
def _replace(program: ProgramArrays, local: LocalArrays, leaves: Leaves, value: int, end: int) -> None:
    """A kernel reads what a value is made of in place of the value."""
    reader, kept = _first_result(program, end), 0
    for i in range(leaves.filled[reader]):
        if leaves.buffer[reader, i] != value:
            leaves.buffer[reader, kept], leaves.elements[reader, kept] = (
                leaves.buffer[reader, i],
                leaves.elements[reader, i],
            )
            leaves.bytes[reader, kept] = leaves.bytes[reader, i]
            kept += 1
    leaves.filled[reader] = kept
    for i in range(leaves.filled[value]):
        add_leaf(local, leaves, reader, leaves.buffer[value, i], leaves.elements[value, i], leaves.bytes[value, i])
    leaves.small[reader] += leaves.small[value]
