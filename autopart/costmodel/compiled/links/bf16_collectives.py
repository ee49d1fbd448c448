"""Redistributions that move f32 values as bf16: those of which only matmuls at default precision read what arrives.

    %w f32[1024,4096] [{B},{}]
      convert         the shard becomes bf16, if no kernel makes it: an argument
      all_gather      half the bytes, on the links and in memory
      dot_general     reads bf16 in any case

What is gathered again is rounded once for all its gathers, where their groups can be listed in other orders
(`Step.spellings`) and no loop is around them. Else a barrier stands before the shard, and it is rounded again.

XLA:TPU rounds the operands of such a matmul to bf16, and moves the rounding before an all_gather, all_to_all or
all_permute, through transposes, reshapes, slices and concatenates on the way, on v3 as on v5e (libtpu 0.0.51). Where
anything else reads what arrives, or the matmul asks for more precision, f32 is moved. Reductions add in f32.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import NARROW_SHARE, LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, SLICING
from autopart.costmodel.compiled.fusion.kernel_graph import USE_MOVE, KernelGraph

WIDE_BYTES = 4
"""Bytes of an f32."""


def narrow_uses(program: ProgramArrays) -> np.ndarray:
    """bool[uses]: the use reads an f32 value for matmuls that read bf16, at once or behind ops that only move it."""
    narrow = np.zeros(len(program.uses), np.bool_)
    _find_narrow(program, narrow)
    return narrow


@kernel
def _find_narrow(program: ProgramArrays, narrow: np.ndarray) -> None:
    """Fills in `narrow`, which begins with False."""
    for op in range(program.ops.shape[0] - 1, -1, -1):
        result, results = program.result_ptr[op], program.result_ptr[op + 1] - program.result_ptr[op]
        reads_narrow = program.ops.narrows[op]
        if not reads_narrow and results == 1 and not program.ops.is_argument[op]:
            moves = program.ops.op_class[op] == ELEMENTWISE and program.ops.weight[op] == 0
            operands = program.operand_ptr[op + 1] - program.operand_ptr[op]
            slices = program.ops.op_class[op] == SLICING and operands == 1
            keeps = (program.ops.is_view[op] or moves or slices) and _elements_read(program, op) >= (
                program.values.elements[result]
            )
            reads_narrow = keeps and _is_read_narrow(program, narrow, result)
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            narrow[use] = reads_narrow and program.values.element_bytes[program.uses.operands[use]] == WIDE_BYTES


@kernel
def _elements_read(program: ProgramArrays, op: int) -> float:
    """Elements of all operands together; a broadcast and a pad have fewer than their result, a concatenate as many."""
    elements = 0.0
    for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
        elements += program.values.elements[program.uses.operands[use]]
    return elements


@kernel
def _is_read_narrow(program: ProgramArrays, narrow: np.ndarray, value: int) -> bool:
    """True if all that reads an f32 value reads it as bf16."""
    found = not program.values.is_output[value] and program.values.element_bytes[value] == WIDE_BYTES
    found = found and program.user_ptr[value] < program.user_ptr[value + 1]
    for i in range(program.user_ptr[value], program.user_ptr[value + 1]):
        found = found and narrow[program.user[i]]
    return found


@kernel
def narrow_moves(narrow: np.ndarray, of_use: np.ndarray, found: np.ndarray) -> None:
    """Marks in `found` redistributions before uses of which all uses are `narrow`; `of_use` as in `Placement`."""
    for r in range(found.shape[0]):
        found[r] = True
    for use in range(of_use.shape[0]):
        if of_use[use] >= 0:
            found[of_use[use]] &= narrow[use]


@kernel
def rounded_bytes(program: ProgramArrays, local: LocalArrays, graph: KernelGraph, narrow: np.ndarray, k: int) -> float:
    """Bytes that are moved to round an argument before node k, where that is one of the `narrow` moves."""
    move = graph.nodes.subject[k]
    if graph.nodes.kind[k] != USE_MOVE or not narrow[move] or local.moves.moves_nothing[move]:
        return 0.0
    value = local.moves.moved_value[move]
    by_itself = program.ops.is_argument[program.values.value_op[value]]
    return local.values.settled_bytes[value] * (1 + NARROW_SHARE) if by_itself else 0.0
