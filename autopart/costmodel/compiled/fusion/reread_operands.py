"""A product with an operand that its kernel computes reads another that fits on no chip once for every few rows.

    %x = multiply %n, %scale     f32[4096,1024]: computed in the product's kernel
    %l = dot %x %table           f32[4096,40960], a table of f32[40960,1024], 168 MB: 3.8 ms, and 1.8 ms of %n itself

The kernel of a product alone holds half of its rows on the chip and reads the table twice; one that computes its rows
holds 300 to 600 of them. A table of up to nine tenths of the chip's memory is read from there: 1.3 ms of 24576 rows,
either way. Nor does it matter where the sum is over the longer dim of the table. Found with libtpu 0.0.51 on v5e, v5p,
v6e and v4, which take 2.1, 1.9, 1.7 and 1.5 times as long, in bf16 1.4, 1.3, 1.1 and 1.2.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import F32_BYTES, LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE

HELD_SHARE = 0.9
"""Of the chip's memory: an operand that takes more is read again."""

ROWS_SHARE = 0.054
"""Of the chip's memory: rows that take less are held at once, or nearly: 1536 rows of 1024 in f32 take 1.25 times as
long."""

TWICE, TWICE_NARROW = 2.0, 1.4
"""How much longer a product takes that reads one again, in f32 and in fewer bytes."""


@kernel
def read_again(
    program: ProgramArrays, local: LocalArrays, op: int, reads: Records, first: int, end: int
) -> tuple[float, float]:
    """(bytes, bytes of an element) of the largest operand of a product that its kernel may read again; 0 bytes: none.

    `reads` from `first` to `end` are those of the kernel.
    """
    held, each, computes = 0.0, F32_BYTES, False
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        value = _behind_views(program, program.uses.operands[use])
        taken = _read_bytes(program, local, reads, first, end, value)
        if taken > held:
            held, each = taken, program.values.element_bytes[value]
        computes |= taken == 0.0 and program.ops.op_class[program.values.value_op[value]] == ELEMENTWISE
    return held if computes else 0.0, each


@kernel
def reread(program: ProgramArrays, local: LocalArrays, nodes: Records, k: int, on_chip_bytes: float) -> float:
    """How many times as long kernel `k` takes for its product since it reads an operand again; 1 for any other.

    `on_chip_bytes` is of the chip, if the compiler says what lies there, else 0.
    """
    held, each = nodes.again_bytes[k], nodes.again_element_bytes[k]
    if nodes.is_conv[k] or held <= HELD_SHARE * on_chip_bytes or on_chip_bytes == 0.0:
        return 1.0
    result = program.result_ptr[nodes.subject[k]]
    made = local.values.native_bytes[result] / program.values.element_bytes[result]
    summed = nodes.matrix_flop[k] / (2.0 * made)
    rows = nodes.matrix_flop[k] / (2.0 * held / each)
    if held / each < summed * summed or rows * summed * F32_BYTES < ROWS_SHARE * on_chip_bytes:
        return 1.0
    return TWICE if each >= F32_BYTES else TWICE_NARROW


@kernel
def _behind_views(program: ProgramArrays, value: int) -> int:
    """What a value is a view, a transpose or a conversion of."""
    op = program.values.value_op[value]
    while program.ops.is_view[op] or _only_moves(program, op):
        value = program.uses.operands[program.operand_ptr[op]]
        op = program.values.value_op[value]
    return value


@kernel
def _only_moves(program: ProgramArrays, op: int) -> bool:
    """True for a transpose or a conversion: an elementwise op of one array that computes nothing."""
    is_of_one = program.ops.op_class[op] == ELEMENTWISE and program.operand_ptr[op + 1] - program.operand_ptr[op] == 1
    return is_of_one and program.ops.weight[op] == 0.0


@kernel
def _read_bytes(program: ProgramArrays, local: LocalArrays, reads: Records, first: int, end: int, value: int) -> float:
    """What a kernel reads of a value, be it redistributed; 0 where it computes it."""
    values = program.values.shape[0]
    for i in range(first, end):
        buffer = reads.read_buffer[i]
        if value == (buffer if buffer < values else local.moves.moved_value[buffer - values]):
            return reads.read_bytes[i]
    return 0.0
