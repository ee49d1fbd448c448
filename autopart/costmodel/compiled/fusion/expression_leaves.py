"""What the expression of a value reads, where all that may be is computed inside its readers, and where these meet.

%y = add %a (tanh %b)     two leaves, %a and %b; %y is written if two kernels read it, since computing it in each
                          would read both twice
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import SLICING

MOST_LEAVES = 8
"""Arrays that are told apart of what a kernel reads."""

LARGE_SHARE = 0.5
"""A buffer counts where a value reads it, if it has at least this share of the value's elements: XLA counts operands of
the value's rank, so not what is spread along a dim."""

UNKNOWN = -1
"""In place of how many buffers are read: nobody asked."""

MOST_COUNTED = 4
"""Kernels that are told apart of those that read a value."""

MADE_HERE = 2**31 - 1
"""The leaf of what is counted out, as random bits are, and of constants: no buffer, but an
operand to XLA's rule."""

NOWHERE, APART = -1, -2
"""In place of the kernel in which the readers of a value meet."""


class Leaves(NamedTuple):
    """The large buffers that the expression of a value reads, and how much of them, as [values, `MOST_LEAVES`]: so many
    as are `filled`. `small` has the bytes of all others, each as often as it is read.

    For what is never computed inside others they are those of its kernel, at its op's first result.
    """

    buffer: np.ndarray
    elements: np.ndarray
    bytes: np.ndarray
    filled: np.ndarray
    small: np.ndarray

    @staticmethod
    def empty(values: int, empty: Empty) -> Leaves:
        """Room for those of so many values."""
        shape = (values, MOST_LEAVES)
        return Leaves(empty(shape, np.int32), empty(shape), empty(shape), empty(values, np.int32), empty(values))


@kernel
def read_leaves(program: ProgramArrays, local: LocalArrays, leaves: Leaves, away: np.ndarray, op: int) -> None:
    """Fills in what an op reads, at its first result; `away` as in `Fused`."""
    value = program.result_ptr[op]
    leaves.filled[value], leaves.small[value] = 0, 0.0
    reads = program.operand_ptr[op] < program.operand_ptr[op + 1]
    if not (reads or program.values.is_splat[value]):
        made = local.values.native_elements[value]
        add_leaf(local, leaves, value, MADE_HERE, made, made * program.values.element_bytes[value])
        return
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        _read_leaves(program, local, leaves, away, value, use)


@kernel
def _read_leaves(
    program: ProgramArrays, local: LocalArrays, leaves: Leaves, away: np.ndarray, value: int, use: int
) -> None:
    """Adds what one use reads to the leaves of `value`."""
    operand, elements = program.uses.operands[use], local.uses.use_elements[use]
    if program.ops.op_class[program.values.value_op[value]] == SLICING:
        elements = min(elements, local.values.native_elements[value])
    if operand < value and (away[operand] or program.values.is_splat[operand]):
        for i in range(leaves.filled[operand]):
            read = min(elements, leaves.elements[operand, i])
            add_leaf(local, leaves, value, leaves.buffer[operand, i], read, leaves.bytes[operand, i])
        leaves.small[value] += leaves.small[operand]
    else:
        in_bytes = elements * program.values.element_bytes[operand]
        add_leaf(local, leaves, value, local.uses.use_buffer[use], elements, in_bytes)


@kernel
def add_leaf(local: LocalArrays, leaves: Leaves, value: int, buffer: int, elements: float, in_bytes: float) -> None:
    """Adds a buffer to what the value reads, if it is none of it yet and there is room."""
    if elements < LARGE_SHARE * local.values.native_elements[value]:
        leaves.small[value] += in_bytes
        return
    count = leaves.filled[value]
    for i in range(count):
        if leaves.buffer[value, i] == buffer:
            return
    if count < MOST_LEAVES:
        leaves.buffer[value, count], leaves.elements[value, count], leaves.bytes[value, count] = (
            buffer,
            elements,
            in_bytes,
        )
        leaves.filled[value] = count + 1


@kernel
def where_readers_meet(program: ProgramArrays, able: np.ndarray, meets: np.ndarray, value: int) -> int:
    """The kernel that all readers of a value end in; `APART` if there are several, `NOWHERE` if none."""
    met = NOWHERE
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        end = end_of(program, able, meets, program.uses.use_op[program.user[i]])
        if met >= 0 and met != end:
            return APART
        met = end
    return met


@kernel
def reading_kernels(program: ProgramArrays, able: np.ndarray, meets: np.ndarray, value: int) -> int:
    """In how many kernels the readers of a value end, `MOST_COUNTED` or fewer."""
    found, first, second, third = 0, -1, -1, -1
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        end = end_of(program, able, meets, program.uses.use_op[program.user[i]])
        if end in (first, second, third):
            continue
        first, second, third, found = end, first, second, found + 1
        if found == MOST_COUNTED:
            break
    return found


@kernel
def end_of(program: ProgramArrays, able: np.ndarray, meets: np.ndarray, reader: int) -> int:
    """The kernel that an op is computed in: a value that is written, or the number of values and that of an op."""
    if program.result_ptr[reader + 1] - program.result_ptr[reader] == 1 and able[program.result_ptr[reader]]:
        return int(meets[program.result_ptr[reader]])
    return int(program.values.shape[0] + reader)
