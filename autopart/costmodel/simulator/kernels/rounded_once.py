"""What a product's kernel ends with, in f32, for other products alone: it leaves that in bf16.

    %p = dot %x %w               f32[16384,512]
    %q = add %p (broadcast %b)   the same kernel, bf16: queries, which two products read, forward and back
    %s = dot %q %k

Inside its readers it would be computed from %p, which is twice as large. What several products read is left so,
whatever is computed, and what one reads if it is made of %p in a row: a bias, a ReLU and a tanh are, a GELU, which
reads %p twice, is computed by its reader. What runs in one kernel with its reader (`nested_products.py`) is not written
at all. Made of %p alone, it takes the product's kernel no longer than an f32 array that is left on the chip. Found with
libtpu 0.0.51 on v5e, in 20 programs of two or three products, and in attention of a GPT, a ViT and a set transformer.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import F32_BYTES, LocalArrays, ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE
from autopart.costmodel.simulator.kernels.fusion import Fused


@kernel
def round_once(program: ProgramArrays, local: LocalArrays, fused: Fused) -> None:
    """Takes fused.away[value] from such values, and sets `is_rounded` of those that are made in a row."""
    for value in range(fused.away.shape[0]):
        local.values.is_rounded[value] = False
        if not (fused.away[value] and fused.ends[value] and _only_products_round(program, value)):
            continue
        in_a_row = _is_in_a_row(program, fused, value)
        if (fused.splits[value] or in_a_row) and not _is_nested(program, fused, value):
            fused.away[value] = False
            local.values.is_rounded[value] = in_a_row and fused.leaves.filled[value] == 1


@kernel
def _only_products_round(program: ProgramArrays, value: int) -> bool:
    """True for what an elementwise op makes in f32 and all that reads it reads as bf16."""
    if program.values.element_bytes[value] != F32_BYTES:
        return False
    if program.ops.op_class[program.values.value_op[value]] != ELEMENTWISE:
        return False
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        if not program.ops.narrows[program.uses.use_op[program.user[i]]]:
            return False
    return True


@kernel
def _before(program: ProgramArrays, fused: Fused, value: int) -> int:
    """The last of what an op reads that the same product's kernel makes on the way to it; -1 if that is the product."""
    op, found = program.values.value_op[value], -1
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        operand = program.uses.operands[use]
        if fused.ends[operand] and fused.away[operand] and operand < value:
            found = operand
    return found


@kernel
def _is_in_a_row(program: ProgramArrays, fused: Fused, value: int) -> bool:
    """True if each op between the product and what its kernel ends with is all that reads the one before."""
    while value >= 0:
        op, value = program.values.value_op[value], _before(program, fused, value)
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            read = program.uses.operands[use]
            on_the_way = read == value or (value < 0 and program.ops.matrix_flop[program.uses.producer[use]] > 0)
            if on_the_way and program.user_ptr[read + 1] - program.user_ptr[read] > 1:
                return False
    return True


@kernel
def _is_nested(program: ProgramArrays, fused: Fused, value: int) -> bool:
    """True if the product on the way runs inside another."""
    first = value
    while value >= 0:
        first, value = value, _before(program, fused, value)
    op = program.values.value_op[first]
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        if program.ops.matrix_flop[program.uses.producer[use]] > 0 and fused.away[program.uses.operands[use]]:
            return True
    return False
