"""When each node runs and until when each buffer is read.

Nodes run in program order, except what can run early and frees at least the memory it takes: an optimizer's update of a
parameter runs as soon as the gradient is there, and the gradient is gone. What reads through an optimization barrier
runs no earlier than the barrier stands: what is computed again there is not computed while the first copy is there.

Small results are no reason to wait: the compiler schedules them wherever what they are computed from is there. A bias
correction that stands behind all gradients, and in a loop is made of a count that the loop carries, keeps no update
from its gradient. So a small result has a slot at which it is made and an earlier one at which it could be. So has what
is made of constants alone, whatever its size: a mask of positions keeps no maximum from the scores that are masked.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, REDUCE, UPDATE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, OVERWRITTEN, KernelGraph, until
from autopart.costmodel.compiled.slots import UNKNOWN, before, early, slot_of

SMALL_BYTES = 65536.0
"""A result below this is run early whatever it frees: the scalars of an optimizer."""

OF_CONSTANTS = 1
"""The slot, before those of all nodes, from which on there could be what is made of constants alone."""


class Buffers(NamedTuple):
    """The memory of every buffer, in slots and bytes.

    made[b]    the slot at which buffer b is written; 0 for arguments, and for what is never written
    last[b]    the last slot at which it is read; -1 if never
    end[b]     the slot until which it takes memory
    bytes[b]   what it takes then; 0 where it is written into another buffer's memory
    """

    made: np.ndarray
    last: np.ndarray
    end: np.ndarray
    bytes: np.ndarray


@kernel
def structure_reads(program: ProgramArrays, local: LocalArrays, last: np.ndarray) -> None:
    """Fills in last[buffer], the last slot at which loops, branches, arguments and outputs read it; -1 if none does."""
    ops = program.ops.shape[0]
    for buffer in range(last.shape[0]):
        last[buffer] = -1
    for i in range(program.outputs.shape[0]):
        use = program.outputs.output_use[i]
        last[local.uses.use_buffer[use] if use >= 0 else local.values.shows[program.outputs.output_value[i]]] = before(
            ops
        )
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            buffer = local.uses.use_buffer[use]
            slot = before(program.uses.use_position[use])
            if program.ops.carry_body[op] < 0:
                slot = max(slot, slot_of(op))
            if program.uses.use_scope[use] != local.home[buffer]:
                slot = until(program.scopes, local.home[buffer], program.uses.use_scope[use], slot)
            last[buffer] = max(last[buffer], slot)


@kernel
def last_slots(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    slot: np.ndarray,
    structure: np.ndarray,
    last: np.ndarray,
) -> None:
    """Fills in last[buffer], the last slot at which it is read, -1 if never; nodes run at `slot`.

    What a loop carries and a turn updates in place is read before, whatever else reads it (`copy_insertion.cc`).
    """
    for buffer in range(last.shape[0]):
        last[buffer] = structure[buffer]
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer, at = graph.reads.read_buffer[i], slot[k]
            if graph.nodes.scope[k] != local.home[buffer]:
                at = until(program.scopes, local.home[buffer], graph.nodes.scope[k], at)
            last[buffer] = max(last[buffer], at)
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] != KERNEL or program.ops.op_class[graph.nodes.subject[k]] != UPDATE:
            continue
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            if graph.reads.read_how[i] & OVERWRITTEN and _is_carried(program, buffer):
                last[buffer] = min(last[buffer], slot[k])


@kernel
def _is_carried(program: ProgramArrays, buffer: int) -> bool:
    """True for what a loop carries, as a turn finds it."""
    if buffer >= program.values.shape[0]:
        return False
    op = program.values.value_op[buffer]
    return program.ops.carry_body[op] >= 0 and buffer == program.result_ptr[op]


@kernel
def made_at(program: ProgramArrays, graph: KernelGraph, slot: np.ndarray, made: np.ndarray) -> None:
    """Fills in made[buffer], the slot at which it is written; 0 for arguments, and for what is never written."""
    for buffer in range(made.shape[0]):
        made[buffer] = 0
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            made[value] = slot_of(op)
        if program.ops.carry_body[op] >= 0:
            made[program.result_ptr[op] + 1] = before(program.scopes.scope_end[program.ops.carry_body[op]])
    for k in range(graph.nodes.shape[0]):
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            made[graph.write_buffer[i]] = slot[k]


@kernel
def run_early(
    program: ProgramArrays,
    graph: KernelGraph,
    planned: np.ndarray,
    buffers: Buffers,
    fence: np.ndarray,
    slot: np.ndarray,
    possible: np.ndarray,
    depth: np.ndarray,
) -> None:
    """Fills in the slots at which nodes run, where `planned` ones can be earlier; `buffers` are for those.

    Changes `buffers.made` with them. possible[buffer] becomes the slot from which on it could have been made,
    depth[buffer] how many kernels are between it and arguments at most; `UNKNOWN` behind loops and fences.
    `fence` is scratch: see `_fences`.
    """
    values, made = program.values.shape[0], buffers.made
    _fences(program, fence)
    for buffer in range(made.shape[0]):
        possible[buffer], depth[buffer] = made[buffer], 0 if made[buffer] == 0 else UNKNOWN
    for k in range(graph.nodes.shape[0]):
        op, slot[k] = graph.nodes.subject[k], planned[k]
        could = planned[k]
        if graph.nodes.kind[k] == KERNEL and (
            program.ops.op_class[op] == ELEMENTWISE or program.ops.op_class[op] == REDUCE
        ):
            there, ready, frees, takes, moved_after = fence[op], fence[op], 0.0, 0.0, False
            touched, counted = graph.nodes.written[k], fence[op] == 0
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                buffer = graph.reads.read_buffer[i]
                counted = counted and possible[buffer] == OF_CONSTANTS
                there, ready = max(there, made[buffer]), max(ready, possible[buffer])
                touched += graph.reads.read_bytes[i]
                if buffers.last[buffer] == planned[k]:
                    frees += buffers.bytes[buffer]
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                takes += buffers.bytes[graph.write_buffer[i]]
                moved_after = moved_after or graph.write_buffer[i] >= values
            begins, is_small = before(program.scopes.scope_start[graph.nodes.scope[k]]), touched < SMALL_BYTES
            if not moved_after:
                could = min(could, early(max(ready, begins)))
            if not moved_after and (frees >= takes or takes < SMALL_BYTES):
                if not is_small:
                    slot[k] = could
                elif there >= begins:
                    slot[k] = min(slot[k], early(there))
            if not is_small:
                could = slot[k]
            if counted and not moved_after:
                could = OF_CONSTANTS
        below = UNKNOWN if graph.nodes.kind[k] == KERNEL and fence[op] > 0 else 0
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            below = max(below, depth[graph.reads.read_buffer[i]])
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            made[graph.write_buffer[i]], possible[graph.write_buffer[i]] = slot[k], could
            depth[graph.write_buffer[i]] = min(UNKNOWN, below + 1)


@kernel
def _fences(program: ProgramArrays, fence: np.ndarray) -> None:
    """fence[op]: the slot of the last fence in the op's scope that what the op computes goes through; 0 for none."""
    for op in range(program.ops.shape[0]):
        fence[op] = 0
    if program.fences.shape[0] == 0:
        return
    for op in range(program.fences[0], program.ops.shape[0]):
        if program.ops.is_argument[op]:
            continue
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            source = program.values.value_op[program.uses.operands[use]]
            if source < op and program.ops.op_scope[source] == program.ops.op_scope[op]:
                fence[op] = max(fence[op], fence[source])
        if program.ops.is_view[op] and not program.ops.takes[op]:
            fence[op] = slot_of(op)
