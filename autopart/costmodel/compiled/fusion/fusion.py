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
the rounding, has one operand: the gradient of scores, in both dots that read it. What ends a dot's kernel is.

A kernel of several ops is then merged into all that read its result, where that moves no more bytes
(`fusion_merger.py`).

XLA:GPU (`priority_fusion.cc`) asks whether computing a value again takes longer than moving it: its fusion counts 467
clock cycles for a tanh, so the tanh of a GELU in bf16 is written beside the GELU for the backward pass. Reading across
rows is dear, too: what a transpose leaves is written where several kernels read it.

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

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.arrays import F32_BYTES, LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.cut_arrays import NESTED
from autopart.costmodel.compiled.facts.op_classes import CONV, EXPENSIVE, MATMUL, SLICING
from autopart.costmodel.compiled.fusion.expression_leaves import (
    APART,
    MADE_HERE,
    MOST_COUNTED,
    UNKNOWN,
    Leaves,
    read_leaves,
    reading_kernels,
    where_readers_meet,
)
from autopart.costmodel.compiled.fusion.fusion_merger import MOST_KERNELS, merge

MOST_OPERANDS = 100
"""Most arrays that one kernel reads: XLA makes one kernel of a sum of 100 on TPUs, two of one of 104. There is no limit
to the ops computed inside it: 2,000 were one kernel."""

MOVED_TIMES = 7.5
"""A value that is not computed again is written once and read twice, and a kernel that computes it again hides some
computing behind what it moves. By what XLA:GPU 0.10.2 compiles for an H100: a GELU's tanh, 506 cycles, is computed
again in f32 and written in bf16, one of erfc is written in f32 too."""


class Fused(NamedTuple):
    """What is found out of each value: whether its consumers compute it; how many arrays its expression reads.

    away       views of values that are computed inside their consumers are, too
    operands   0 where the op has several results; what several ops of one kernel read counts once where they meet, and
               what is merged as one
    cycles     clock cycles per element of its expression, where they count
    turned     a transpose of what it reads is computed inside it
    ends       it ends the kernel of a product
    merges     it may be merged into the kernels that read it
    others     scratch: bool[values] `able`, bool[values] `splits`, int32[values] `meets`, `leaves`; see the functions
    """

    away: np.ndarray
    operands: np.ndarray
    cycles: np.ndarray
    turned: np.ndarray
    able: np.ndarray
    splits: np.ndarray
    ends: np.ndarray
    merges: np.ndarray
    meets: np.ndarray
    leaves: Leaves
    ends_at: np.ndarray
    behind: np.ndarray

    @staticmethod
    def empty(values: int, empty: Empty) -> Fused:
        """Room for so many values."""
        able, splits, away, ends, merges, turned = empty((6, values), np.bool_)
        meets, leaves = empty(values, np.int32), Leaves.empty(values, empty)
        by_kernel = empty((2, MOST_KERNELS), np.int32)
        counts = empty(values), empty(values)
        return Fused(away, *counts, turned, able, splits, ends, merges, meets, leaves, *by_kernel)


@kernel
def fuse(
    program: ProgramArrays,
    local: LocalArrays,
    def_values: np.ndarray,
    looks_up: np.ndarray,
    able: np.ndarray,
    duplicate: bool,
    byte_cycles: float,
    fused: Fused,
) -> None:
    """Fills in `fused`.

    def_values   the values that are redistributed after their ops
    looks_up     the gathers at several indices of a device, which no reader computes
    able         as `most_fused` finds it
    duplicate    whether an expensive elementwise op is computed again for each consumer
    byte_cycles  clock cycles of all lanes of a device while a byte passes HBM; infinite where they do not count
    """
    for value in range(fused.away.shape[0]):
        fused.able[value], fused.meets[value] = able[value], value
        fused.splits[value] = fused.away[value] = False
    _not_moved(program, local, def_values, looks_up, fused.able)
    _splits(program, fused.able, fused.splits, fused.meets)
    _fuse_able(program, local, duplicate, MOVED_TIMES * byte_cycles, fused)
    merge(program, local, fused.leaves, fused.able, fused.meets, fused.merges, fused.away, fused.ends_at, fused.behind)


def most_fused(program: ProgramArrays, into_matmul: bool) -> tuple[np.ndarray, np.ndarray]:
    """(bool[values]: True where consumers could compute the value if nothing was moved; views of such values too,
    bool[values]: True where its readers end in different kernels then, and so in any state in which it is able).

    into_matmul: whether matmuls and convolutions take elementwise operands (TPU; not cuBLAS). What is moved ends the
    ways to kernels sooner: ways that meet nowhere do not meet then either.
    """
    values = len(program.values)
    able, splits, meets = np.zeros(values, np.bool_), np.zeros(values, np.bool_), np.arange(values, dtype=np.int32)
    _find_most_fused(program, into_matmul, able, splits, meets)
    return able, splits


@kernel
def _find_most_fused(
    program: ProgramArrays, into_matmul: bool, able: np.ndarray, splits: np.ndarray, meets: np.ndarray
) -> None:
    """Fills in `able` and `splits`, which begin with False; `meets` as in `_splits`."""
    _able(program, into_matmul, able)
    _splits(program, able, splits, meets)


@kernel
def _fuse_able(program: ProgramArrays, local: LocalArrays, duplicate: bool, most_cycles: float, fused: Fused) -> None:
    """Fills in all but what is merged; `most_cycles`: by byte of a value that is computed again."""
    able, splits, leaves, operands, fused_away = fused.able, fused.splits, fused.leaves, fused.operands, fused.away
    for op in range(program.ops.shape[0]):
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            operands[value], fused.cycles[value] = 0.0, 0.0
            leaves.filled[value], leaves.small[value] = UNKNOWN, 0.0
            fused.ends[value] = fused.merges[value] = fused.turned[value] = False
        value, read, near = program.result_ptr[op], 0.0, False
        turned = local.values.turned[value]
        cycles = program.ops.cycles[op]
        if program.result_ptr[op + 1] - value != 1 or program.ops.is_argument[op]:
            continue
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            operand = program.uses.operands[use]
            share = 1.0 / (program.user_ptr[operand + 1] - program.user_ptr[operand])
            here = operands[operand] * (1.0 if splits[operand] else share)
            inside = operand < value and fused_away[operand]
            if inside and read + here > MOST_OPERANDS:
                inside = fused_away[operand] = False
            if inside:
                cycles += fused.cycles[operand] * (1.0 if splits[operand] else share)
                turned = turned or fused.turned[operand]
            else:
                here = 0.0 if program.values.is_splat[operand] else share
                turned = turned or local.values.laid_anew[operand]
            read += here
            kind = program.ops.op_class[program.uses.producer[use]]
            near = near or fused.ends[operand] or kind in (MATMUL, CONV)
        operands[value], fused.cycles[value], fused.turned[value] = read, cycles, turned
        if not able[value]:
            continue
        read_leaves(program, local, leaves, fused_away, op)
        fuses = program.ops.fuses[op] and program.values.laid[value] != NESTED
        fused.ends[value] = near and fuses and _ends_product(program, local, fused, op)
        again = splits[value] and (
            (program.ops.weight[op] >= EXPENSIVE and not duplicate)
            or _is_dear(program, fused, value, cycles, most_cycles * program.values.element_bytes[value])
            or (turned and most_cycles < np.inf)
        )
        more = splits[value] and _reads_more(program, local, fused, value)
        wasteful = splits[value] and (program.values.exponential[value] or more)
        fused_away[value] = not again and not wasteful
        fused.merges[value] = more and not again and _may_be_merged(program, fused, value)
        source = op
        while wasteful and program.ops.is_view[source]:
            behind = program.uses.operands[program.operand_ptr[source]]
            fused_away[behind], source = False, program.values.value_op[behind]


@kernel
def _is_dear(program: ProgramArrays, fused: Fused, value: int, cycles: float, most: float) -> bool:
    """True if all kernels that read a value but one would compute for more than `most` cycles per element."""
    if cycles * (MOST_COUNTED - 1) <= most:
        return False
    return cycles * (reading_kernels(program, fused.able, fused.meets, value) - 1) > most


@kernel
def _splits(program: ProgramArrays, able: np.ndarray, splits: np.ndarray, meets: np.ndarray) -> None:
    """Sets splits[value] where readers of the value end in different kernels, so computing it inside them repeats it.

    What several ops read is computed once where all of them meet in one op again: `x * sigmoid(x)` reads `x` once.
    `meets` is scratch: for each value its own number.
    """
    for op in range(program.ops.shape[0] - 1, -1, -1):
        value = program.result_ptr[op]
        if program.result_ptr[op + 1] - value == 1 and able[value]:
            met = where_readers_meet(program, able, meets, value)
            splits[value] = splits[value] or met == APART
            if met >= 0 and not splits[value]:
                meets[value] = met


@kernel
def _reads_more(program: ProgramArrays, local: LocalArrays, fused: Fused, value: int) -> bool:
    """True if the value's expression reads two large buffers or more, and more bytes than the value has; not what is
    rounded for products, nor what is laid out inside its readers."""
    leaves = fused.leaves
    if leaves.filled[value] < 2 or program.values.laid[value] == NESTED or _rounds_for_products(program, fused, value):
        return False
    held = local.values.native_elements[value] * program.values.element_bytes[value]
    return leaves.bytes[value, 0] + leaves.bytes[value, 1] > held


@kernel
def _may_be_merged(program: ProgramArrays, fused: Fused, value: int) -> bool:
    """True if a value is made by several ops, no product, exponential that is kept or random bits among them."""
    op, leaves = program.values.value_op[value], fused.leaves
    if fused.ends[value] or program.values.exponential[value]:
        return False
    for i in range(leaves.filled[value]):
        buffer = leaves.buffer[value, i]
        if buffer == MADE_HERE or _is_exponential(program, buffer):
            return False
    while program.ops.is_view[op]:
        op = program.values.value_op[program.uses.operands[program.operand_ptr[op]]]
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        operand = program.uses.operands[use]
        if fused.away[operand] and not program.values.is_splat[operand]:
            return True
    return False


@kernel
def _ends_product(program: ProgramArrays, local: LocalArrays, fused: Fused, op: int) -> bool:
    """True if an op reads what nothing else does and a product's kernel makes: that kernel makes its result, too."""
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        operand = program.uses.operands[use]
        if operand >= program.result_ptr[op] or local.uses.use_buffer[use] != operand:
            continue
        kind = program.ops.op_class[program.values.value_op[operand]]
        if kind in (MATMUL, CONV) and where_readers_meet(program, fused.able, fused.meets, operand) >= 0:
            return True
        if fused.ends[operand] and fused.away[operand] and not fused.splits[operand]:
            return True
    return False


@kernel
def _rounds_for_products(program: ProgramArrays, fused: Fused, value: int) -> bool:
    """True if only products read a value in bf16, it is not made of exponentials that are kept, and not what ends the
    kernel of a product."""
    if program.values.element_bytes[value] >= F32_BYTES or not _only_products_read(program, value):
        return False
    for i in range(fused.leaves.filled[value]):
        if _is_exponential(program, fused.leaves.buffer[value, i]):
            return False
    return not fused.ends[value]


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
def _able(program: ProgramArrays, into_matmul: bool, able: np.ndarray) -> None:
    """Sets able[value] where every consumer could compute the value itself; through a view, all of the view's. What a
    sum over dims of size one begins with is shown by nothing."""
    for op in range(program.ops.shape[0] - 1, -1, -1):
        if (
            not (program.ops.fuses[op] or program.ops.is_view[op])
            or program.result_ptr[op + 1] - program.result_ptr[op] != 1
        ):
            continue
        value = program.result_ptr[op]
        ok = not program.values.is_output[value] and not program.values.is_written[value]
        for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
            use = program.user[i]
            consumer = program.uses.use_op[use]
            if program.uses.use_scope[use] != program.ops.op_scope[op] or program.ops.is_argument[consumer]:
                ok = False
            elif program.ops.is_view[consumer]:
                shown = program.result_ptr[consumer] + use - program.operand_ptr[consumer]
                if shown < program.result_ptr[consumer + 1]:
                    ok = ok and program.ops.takes[consumer] and able[shown]
            elif program.ops.op_class[consumer] == MATMUL or program.ops.op_class[consumer] == CONV:
                ok = ok and (into_matmul or program.values.is_splat[value])
            else:
                is_index = program.ops.op_class[consumer] == SLICING and use > program.operand_ptr[consumer]
                ok = ok and (program.ops.takes[consumer] or is_index or program.values.is_looked_up[value])
            if not ok:
                break
        able[value] = ok


@kernel
def _not_moved(
    program: ProgramArrays, local: LocalArrays, def_values: np.ndarray, looks_up: np.ndarray, able: np.ndarray
) -> None:
    """Takes able[value] away where the value, or a view of it, is redistributed or looked up: its consumers read an
    array then."""
    for op in range(looks_up.shape[0]):
        if looks_up[op]:
            able[program.result_ptr[op]] = False
    for d in range(def_values.shape[0]):
        able[def_values[d]] = False
    for use in range(program.uses.shape[0]):
        moved = local.uses.of_use[use]
        if moved >= 0 and not local.moves.moves_nothing[moved]:
            able[program.uses.operands[use]] = False
    for i in range(program.views.shape[0] - 1, -1, -1):
        op = program.views[i]
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            if not able[value]:
                able[program.uses.operands[program.operand_ptr[op] + value - program.result_ptr[op]]] = False
