"""Which values are never written to memory: a fusion heuristic after XLA's.

    %h = dot %x %w
    %e = exp %h               computed inside each of the dots that read it, twice if there are two
    %p = dot %e %v

An op is *fused away* when it is computed inside its consumers: it is elementwise or a slice, its consumers are all in
the same scope and take fusible operands, none is a collective or an output. Through a view (a reshape) the view's
consumers count. What remains, the roots, are the kernels that run; `multi_output.py` then joins some of those.

A value that several kernels read is computed again in each of them only where this moves no more bytes: if it is made
from at most one large buffer. The sum of a residual stream is made from two, so it is written (XLA's
`InstructionFusion::ComputeGloballyUnfusible`, which also lets through what is fused along all paths to one reader).
The gradient of logits, `softmax - one element per row`, where an update is compiled as a select, is made of the logits
alone: both matmuls that read it compute it, and the logits, in f32, stay until then. A barrier has it written.

What is computed in f32 and rounded to bf16 for matmuls alone is not written, whatever it is made from, as its last op,
the rounding, has one operand: the gradient of scores, in both dots that read it. What ends a dot's kernel is. Nor is
what is scaled last and read by matmuls alone: an operand that is spread out of fewer elements is none to XLA's rule
(`EffectivelyAtMostUnary`), so that the gradient of scores in f32, `(%d - %r) %p 0.125`, is computed in both dots, too.

Random bits are made of no buffer, so each reader computes them, some 120 ops for a number. They are an operand to
XLA's rule all the same: what a mask of them drops is made from two, and is written where several kernels read it.

    %x = add %y %z            written: two dots and a norm would read %y and %z each time
    %g = gelu %h              not written: forward and both backward dots read %h, and compute it
"""

# pyright: reportArgumentType=false, reportAssignmentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import F32_BYTES, LocalArrays, ProgramArrays
from autopart.costmodel.simulator.op_classes import CONV, EXPENSIVE, MATMUL, SLICING
from autopart.costmodel.simulator.room import Empty

MOST_OPERANDS = 100
"""Most arrays that one kernel reads: XLA makes one kernel of a sum of 100 on TPUs, two of one of 104. There is no limit
to the ops computed inside it: 2,000 were one kernel."""

LARGE_SHARE = 0.5
"""A buffer counts where a value reads it, if it has at least this share of the value's elements: XLA counts operands of
the value's rank, so not what is spread along a dim."""

MADE_HERE = 2**31 - 1
"""The leaf of what is counted out (an iota), as random bits are: no buffer, but an operand to XLA's rule."""


class Leaves(NamedTuple):
    """Two of the large buffers that the expression of a value reads, and what it reads of them; as [values, 2].

    buffer is -1 where there is none. A buffer of few elements, as what is spread along a dim has, is not large.
    """

    buffer: np.ndarray
    elements: np.ndarray
    bytes: np.ndarray


class Fused(NamedTuple):
    """What is found out of each value: whether its consumers compute it; how many arrays its expression reads.

    away       views of values that are computed inside their consumers are, too
    operands   0 where the op has several results; what several ops of one kernel read counts once where they meet
    others     scratch: bool[values] `able`, bool[values] `splits`, int32[values] `meets`, `leaves`; see the functions
    """

    away: np.ndarray
    operands: np.ndarray
    able: np.ndarray
    splits: np.ndarray
    meets: np.ndarray
    leaves: Leaves

    @staticmethod
    def empty(values: int, empty: Empty) -> Fused:
        """Room for so many values."""
        able, splits, away = empty((3, values), np.bool_)
        leaves = Leaves(empty((values, 2), np.int32), empty((values, 2)), empty((values, 2)))
        return Fused(away, empty(values), able, splits, empty(values, np.int32), leaves)


@kernel
def fuse(
    program: ProgramArrays, local: LocalArrays, def_values: np.ndarray, able: np.ndarray, duplicate: bool, fused: Fused
) -> None:
    """Fills in `fused`.

    def_values   the values that are redistributed after their ops
    able         as `most_fused` finds it
    duplicate    whether an expensive elementwise op is computed again for each consumer
    """
    for value in range(fused.away.shape[0]):
        is_written = local.values.native_elements[value] < program.values.short_row[value]
        fused.able[value], fused.meets[value] = able[value] and not is_written, value
        fused.splits[value] = fused.away[value] = False
    _not_moved(program, local, def_values, fused.able)
    _splits(program, fused.able, fused.splits, fused.meets)
    _fuse_able(program, local, duplicate, fused)


def most_fused(program: ProgramArrays, into_matmul: bool) -> tuple[np.ndarray, np.ndarray]:
    """(bool[values]: True where consumers could compute the value if nothing was moved; views of such values too,
    bool[values]: True where its readers end in different kernels then, and so in any state in which it is able).

    into_matmul: whether matmuls and convolutions take elementwise operands (TPU; not cuBLAS). What is moved ends the
    ways to kernels sooner: ways that meet nowhere do not meet then either.
    """
    values = len(program.values)
    able, splits = np.zeros(values, np.bool_), np.zeros(values, np.bool_)
    _find_most_fused(program, into_matmul, able, splits, np.arange(values, dtype=np.int32))
    return able, splits


@kernel
def _find_most_fused(
    program: ProgramArrays, into_matmul: bool, able: np.ndarray, splits: np.ndarray, meets: np.ndarray
) -> None:
    """Fills in `able` and `splits`, which begin with False; `meets` as in `_splits`."""
    _able(program, into_matmul, able)
    _splits(program, able, splits, meets)


@kernel
def _fuse_able(program: ProgramArrays, local: LocalArrays, duplicate: bool, fused: Fused) -> None:
    """Fills in `away` and `operands`."""
    able, splits, leaves, operands, fused_away = fused.able, fused.splits, fused.leaves, fused.operands, fused.away
    for op in range(program.ops.shape[0]):
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            operands[value], leaves.buffer[value, 0], leaves.buffer[value, 1] = 0.0, -1, -1
        if program.result_ptr[op + 1] - program.result_ptr[op] != 1 or program.ops.is_argument[op]:
            continue
        value, read = program.result_ptr[op], 0.0
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            operand = program.uses.operands[use]
            share = 1.0 / (program.user_ptr[operand + 1] - program.user_ptr[operand])
            here = operands[operand] * (1.0 if splits[operand] else share)
            inside = operand < value and fused_away[operand]
            if inside and read + here > MOST_OPERANDS:
                inside = fused_away[operand] = False
            if not inside:
                here = 0.0 if program.values.is_splat[operand] else share
            read += here
        operands[value] = read
        if not able[value]:
            continue
        if program.operand_ptr[op] == program.operand_ptr[op + 1] and not program.values.is_splat[value]:
            counted = local.values.native_elements[value]
            _add_leaf(local, leaves, value, MADE_HERE, counted, counted * program.values.element_bytes[value])
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            _add_leaves(program, local, leaves, fused_away, value, use)
        again = splits[value] and (program.ops.weight[op] >= EXPENSIVE and not duplicate)
        wasteful = splits[value] and (program.values.exponential[value] or _reads_more(program, local, leaves, value))
        fused_away[value] = not again and not wasteful
        source = op
        while wasteful and program.ops.is_view[source]:
            behind = program.uses.operands[program.operand_ptr[source]]
            fused_away[behind], source = False, program.values.value_op[behind]


@kernel
def _splits(program: ProgramArrays, able: np.ndarray, splits: np.ndarray, meets: np.ndarray) -> None:
    """Sets splits[value] where readers of the value end in different kernels, so computing it inside them repeats it.

    What several ops read is computed once where all of them meet in one op again: `x * sigmoid(x)` reads `x` once.
    `meets` is scratch: for each value its own number.
    """
    roots = program.values.shape[0]
    for op in range(program.ops.shape[0] - 1, -1, -1):
        if program.result_ptr[op + 1] - program.result_ptr[op] != 1:
            continue
        value, met = program.result_ptr[op], -1
        if not able[value]:
            continue
        for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
            consumer = program.uses.use_op[program.user[i]]
            end = roots + consumer
            if program.result_ptr[consumer + 1] - program.result_ptr[consumer] == 1:
                result = program.result_ptr[consumer]
                end = meets[result] if able[result] else end
            splits[value] = splits[value] or (met >= 0 and met != end)
            met = end
        if met >= 0 and not splits[value]:
            meets[value] = met


@kernel
def _add_leaves(
    program: ProgramArrays, local: LocalArrays, leaves: Leaves, fused_away: np.ndarray, value: int, use: int
) -> None:
    """Adds what one use reads to the leaves of `value`."""
    operand, elements = program.uses.operands[use], local.uses.use_elements[use]
    if program.ops.op_class[program.values.value_op[value]] == SLICING:
        elements = min(elements, local.values.native_elements[value])
    if fused_away[operand] or program.values.is_splat[operand]:
        for i in range(2):
            if leaves.buffer[operand, i] >= 0:
                read = min(elements, leaves.elements[operand, i])
                _add_leaf(local, leaves, value, leaves.buffer[operand, i], read, leaves.bytes[operand, i])
    else:
        in_bytes = elements * program.values.element_bytes[operand]
        _add_leaf(local, leaves, value, local.uses.use_buffer[use], elements, in_bytes)


@kernel
def _add_leaf(local: LocalArrays, leaves: Leaves, value: int, buffer: int, elements: float, in_bytes: float) -> None:
    """Adds a buffer to the leaves of `value` if it is large, no leaf yet, and fewer than two are."""
    if elements < LARGE_SHARE * local.values.native_elements[value] or leaves.buffer[value, 0] == buffer:
        return
    for i in range(2):
        if leaves.buffer[value, i] < 0:
            leaves.buffer[value, i], leaves.elements[value, i], leaves.bytes[value, i] = buffer, elements, in_bytes
            break


@kernel
def _reads_more(program: ProgramArrays, local: LocalArrays, leaves: Leaves, value: int) -> bool:
    """True if the value's expression reads two large buffers or more, and more bytes than the value has; not what is
    rounded or scaled for products."""
    held = local.values.native_elements[value] * program.values.element_bytes[value]
    more = leaves.buffer[value, 1] >= 0 and leaves.bytes[value, 0] + leaves.bytes[value, 1] > held
    return more and not _rounds_for_products(program, leaves, value) and not _scaled_for_products(program, value)


@kernel
def _scaled_for_products(program: ProgramArrays, value: int) -> bool:
    """True if only products read a value, and its last op reads one array and something that is spread along it."""
    op = program.values.value_op[value]
    while program.ops.is_view[op] or program.ops.turns[op]:
        op = program.values.value_op[program.uses.operands[program.operand_ptr[op]]]
    arrays = spread = 0
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        operand = program.uses.operands[use]
        if program.values.is_splat[operand] or _is_spread(program, operand):
            spread += 1
        else:
            arrays += 1
    return spread > 0 and arrays <= 1 and _only_products_read(program, value)


@kernel
def _is_spread(program: ProgramArrays, value: int) -> bool:
    """True for what an op makes of one smaller array."""
    op = program.values.value_op[value]
    first, end = program.operand_ptr[op], program.operand_ptr[op + 1]
    return end - first == 1 and program.values.elements[program.uses.operands[first]] < program.values.elements[value]


def scaled_for_products(program: ProgramArrays) -> np.ndarray:
    """bool[values]: only products read it, and compute it themselves, since its last op reads one array."""
    found = np.zeros(len(program.values), np.bool_)
    _find_scaled(program, found)
    return found


@kernel
def _find_scaled(program: ProgramArrays, found: np.ndarray) -> None:
    """Fills in `found`."""
    for value in range(found.shape[0]):
        found[value] = _scaled_for_products(program, value)


@kernel
def _rounds_for_products(program: ProgramArrays, leaves: Leaves, value: int) -> bool:
    """True if only products read a value in bf16, it is not made of exponentials that are kept, and not what ends the
    kernel of a product."""
    if program.values.element_bytes[value] >= F32_BYTES or not _only_products_read(program, value):
        return False
    if _is_exponential(program, leaves.buffer[value, 0]) or _is_exponential(program, leaves.buffer[value, 1]):
        return False
    return not (
        _ends_product(program, leaves.buffer[value, 0], value) or _ends_product(program, leaves.buffer[value, 1], value)
    )


@kernel
def _is_exponential(program: ProgramArrays, buffer: int) -> bool:
    """True for a buffer of exponentials that are kept in f32 (`softmax_rows.py`)."""
    return 0 <= buffer < program.values.shape[0] and program.values.exponential[buffer]


@kernel
def _only_products_read(program: ProgramArrays, value: int) -> bool:
    """True if all that reads a value, or a view or transpose of it, is a matrix product or convolution."""
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        reader = program.uses.use_op[program.user[i]]
        seen = program.result_ptr[reader]
        while (program.ops.is_view[reader] or program.ops.turns[reader]) and program.user_ptr[
            seen + 1
        ] - program.user_ptr[seen] == 1:
            reader = program.uses.use_op[program.user[program.user_ptr[seen]]]
            seen = program.result_ptr[reader]
        if program.ops.op_class[reader] != MATMUL and program.ops.op_class[reader] != CONV:
            return False
    return True


@kernel
def _ends_product(program: ProgramArrays, buffer: int, value: int) -> bool:
    """True if a buffer is a matrix product's result that nothing reads on the way to `value`: its kernel makes both."""
    if not 0 <= buffer < program.values.shape[0]:
        return False
    kind = program.ops.op_class[program.values.value_op[buffer]]
    if kind != MATMUL and kind != CONV:
        return False
    made = buffer
    while made < value and program.user_ptr[made + 1] - program.user_ptr[made] == 1:
        reader = program.uses.use_op[program.user[program.user_ptr[made]]]
        if program.result_ptr[reader + 1] - program.result_ptr[reader] != 1:
            return False
        made = int(program.result_ptr[reader])
    return made == value


@kernel
def _able(program: ProgramArrays, into_matmul: bool, able: np.ndarray) -> None:
    """Sets able[value] where every consumer could compute the value itself; through a view, all of the view's."""
    for op in range(program.ops.shape[0] - 1, -1, -1):
        if (
            not (program.ops.fuses[op] or program.ops.is_view[op])
            or program.result_ptr[op + 1] - program.result_ptr[op] != 1
        ):
            continue
        value = program.result_ptr[op]
        ok = not program.values.is_output[value] and not program.values.is_cut[value]
        for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
            use = program.user[i]
            consumer = program.uses.use_op[use]
            if program.uses.use_scope[use] != program.ops.op_scope[op] or program.ops.is_argument[consumer]:
                ok = False
            elif program.ops.is_view[consumer]:
                ok = ok and program.ops.takes[consumer] and able[program.result_ptr[consumer]]
            elif program.ops.op_class[consumer] == MATMUL or program.ops.op_class[consumer] == CONV:
                ok = ok and (into_matmul or program.values.is_splat[value]) and not program.values.is_image[value]
            else:
                is_index = program.ops.op_class[consumer] == SLICING and use > program.operand_ptr[consumer]
                ok = ok and (program.ops.takes[consumer] or is_index or program.values.is_looked_up[value])
            if not ok:
                break
        able[value] = ok


@kernel
def _not_moved(program: ProgramArrays, local: LocalArrays, def_values: np.ndarray, able: np.ndarray) -> None:
    """Takes able[value] away where the value, or a view of it, is redistributed: its consumers read an array then."""
    for d in range(def_values.shape[0]):
        able[def_values[d]] = False
    for use in range(program.uses.shape[0]):
        moved = local.uses.of_use[use]
        if moved >= 0 and not local.moves.moves_nothing[moved]:
            able[program.uses.operands[use]] = False
    for i in range(program.views.shape[0] - 1, -1, -1):
        op = program.views[i]
        if not able[program.result_ptr[op]]:
            for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
                able[program.uses.operands[use]] = False
