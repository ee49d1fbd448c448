"""What it is worth to have a buffer on the chip, for the TPU compiler, and who touches it when.

    worth = sum over the kernels that touch it and wait for memory of (its bytes / HBM rate), over the root of its size
          = else how much its kernel's memory takes less than its work, below zero: seconds, over the same root

The compiler asks for buffers in this order; its clock is that of a program in which all passes HBM, with tiles
of the matrix unit filled and layout tiles not. What products alone read is written in bf16; a look-up reads as much as
it writes, however small its table is. Found with libtpu 0.0.51 on v5e: a ViT, a T5, a DiT, a Perceiver and a set
transformer, in whose programs spaces and copies stand; a GAN and a radiance field.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.arrays import BODY, F32_BYTES, LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, REDUCE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, LOOKED_UP, KernelGraph
from autopart.costmodel.compiled.memory_space_assignment.loop_residency import is_argument
from autopart.costmodel.compiled.memory_space_assignment.segment_tree import IntervalRoom
from autopart.costmodel.compiled.roofline import roofline_s
from autopart.costmodel.compiled.slots import before
from autopart.costmodel.hardware.devices import FED, HBM

WHILE_EXECUTIONS = 5.0
"""Turns of each loop by the compiler's account, however many it has: XLA's
`xla_tpu_memory_space_assignment_while_execution_count`."""


class ChipRoom(NamedTuple):
    """Scratch: what lies on the chip when each node runs, and who touches a buffer.

    taken           by place: the number of a node in the order in which they run
    clock_s[place]  when it begins
    queue, worth    buffers, and what it is worth to have them on the chip
    made_at         per buffer: the place of the node that writes it, -1 for none
    first, following   per buffer: its first read; per read: the next of that buffer; -1 for none
    reader          per read: the place of its node
    brought         per read: it is brought from HBM before, beside other kernels
    coming_s, leaving_s   per place: seconds in which nothing is copied yet from HBM, or to it
    """

    taken: IntervalRoom
    clock_s: np.ndarray
    queue: np.ndarray
    worth: np.ndarray
    made_at: np.ndarray
    first: np.ndarray
    following: np.ndarray
    reader: np.ndarray
    brought: np.ndarray
    coming_s: np.ndarray
    leaving_s: np.ndarray

    @staticmethod
    def empty(nodes: int, buffers: int, reads: int, empty: Empty) -> ChipRoom:
        """Room for a step."""
        by_buffer, by_read, by_place = empty((3, buffers), np.int32), empty((2, reads), np.int32), empty((2, nodes))
        return ChipRoom(
            IntervalRoom.empty(nodes, empty), empty(nodes + 1), by_buffer[0], empty(buffers), by_buffer[1],
            by_buffer[2], by_read[0], by_read[1], empty(reads, np.bool_), by_place[0], by_place[1],
        )  # fmt: skip


@kernel
def list_by_worth(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    row: np.ndarray,
    times: np.ndarray,
    buffers: Buffers,
    chip: ChipRoom,
) -> int:
    """Fills in all but `taken`; returns how many buffers are in the queue."""
    _list_reads(graph, order, chip)
    clock_s = 0.0
    for at in range(order.shape[0]):
        k = order[at]
        chip.clock_s[at] = clock_s
        clock_s += times[k] * _weigh(program, local, graph, k, row, buffers, chip)
    chip.clock_s[order.shape[0]] = clock_s
    for at in range(order.shape[0]):
        chip.coming_s[at] = chip.leaving_s[at] = chip.clock_s[at + 1] - chip.clock_s[at]
    return _queue(program, local, graph, order, buffers, chip)


@kernel
def _list_reads(graph: KernelGraph, order: np.ndarray, chip: ChipRoom) -> None:
    """Fills in who reads each buffer, and begins with buffers that nobody writes and that are worth nothing yet."""
    for buffer in range(chip.first.shape[0]):
        chip.first[buffer], chip.made_at[buffer], chip.worth[buffer] = -1, -1, -np.inf
    for at in range(order.shape[0] - 1, -1, -1):
        k = order[at]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            chip.following[i], chip.reader[i], chip.brought[i] = chip.first[buffer], at, False
            chip.first[buffer] = i


@kernel
def _weigh(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    k: int,
    row: np.ndarray,
    buffers: Buffers,
    chip: ChipRoom,
) -> float:
    """Adds what node k gains where a buffer is on the chip; returns the seconds it takes if all passes HBM."""
    passing, turns = graph.nodes.written[k], assumed_turns(program.scopes, graph.nodes.scope[k])
    plain = 0.0
    if passing > 0:
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            plain += _plain_bytes(program, local, graph.write_buffer[i], buffers.bytes[graph.write_buffer[i]])
    for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
        passing += graph.reads.read_bytes[i]
        taken = _plain_bytes(program, local, graph.reads.read_buffer[i], graph.reads.read_bytes[i])
        looks_up = graph.reads.read_how[i] & LOOKED_UP and graph.nodes.kind[k] == KERNEL
        plain += max(taken, graph.nodes.written[k]) if looks_up else taken
    memory_s = node_s = passing / row[HBM]
    compute_s = 0.0
    if graph.nodes.kind[k] == KERNEL:
        plain += _fed_bytes(program, local, graph, k) if row[FED] > 0 else 0.0
        compute_s = _kernel_s(graph, k, graph.nodes.matrix_work[k], 0.0, row)
        node_s = _kernel_s(graph, k, graph.nodes.matrix_flop[k], plain, row)
    for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
        buffer = graph.write_buffer[i]
        _add_worth(chip, buffer, turns * buffers.bytes[buffer] / row[HBM], memory_s - compute_s)
    for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
        _add_worth(chip, graph.reads.read_buffer[i], turns * graph.reads.read_bytes[i] / row[HBM], memory_s - compute_s)
    return turns * node_s


@kernel
def assumed_turns(scopes: Records, scope: int) -> float:
    """How often the compiler thinks that a scope runs: by how deep it is in loops."""
    turns = 1.0
    while scope > 0:
        turns *= WHILE_EXECUTIONS if scopes.scope_kind[scope] == BODY else 1.0
        scope = scopes.scope_parent[scope]
    return turns


@kernel
def _plain_bytes(program: ProgramArrays, local: LocalArrays, buffer: int, taken: float) -> float:
    """Of so many bytes of a buffer those of its elements, without what fills layout tiles up."""
    if buffer >= program.values.shape[0] or local.values.native_bytes[buffer] == 0:
        return taken
    plain = local.values.native_elements[buffer] * program.values.element_bytes[buffer]
    return taken * plain / local.values.native_bytes[buffer]


@kernel
def _add_worth(chip: ChipRoom, buffer: int, gain_s: float, waits_s: float) -> None:
    """Adds what a node gains that waits for memory; of others, keeps how far the one is that is nearest to it."""
    gain_s = gain_s if waits_s > 0 else waits_s
    if gain_s > 0 and chip.worth[buffer] > 0:
        chip.worth[buffer] += gain_s
    else:
        chip.worth[buffer] = max(chip.worth[buffer], gain_s)


@kernel
def _kernel_s(graph: KernelGraph, k: int, matrix_work: float, passing: float, row: np.ndarray) -> float:
    """Seconds of a kernel if so many bytes pass HBM."""
    return roofline_s(
        matrix_work, graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k], graph.nodes.vector_flop[k],
        passing, 0.0, row,
    )  # fmt: skip


@kernel
def _queue(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, order: np.ndarray, buffers: Buffers, chip: ChipRoom
) -> int:
    """Fills in the queue: arguments that are read, and what nodes write in their own scope for others to read."""
    outlive, length = before(program.ops.shape[0]), 0
    for at in range(order.shape[0]):
        k = order[at]
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            buffer = graph.write_buffer[i]
            inside = local.home[buffer] == graph.nodes.scope[k] and buffers.last[buffer] < outlive
            if inside and buffers.bytes[buffer] > 0 and chip.first[buffer] >= 0:
                chip.made_at[buffer], chip.queue[length] = at, buffer
                chip.worth[buffer] /= np.sqrt(buffers.bytes[buffer])
                length += 1
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            if chip.first[buffer] == i and is_argument(program, buffer) and graph.reads.read_bytes[i] > 0:
                chip.queue[length] = buffer
                chip.worth[buffer] /= np.sqrt(graph.reads.read_bytes[i])
                length += 1
    return length


@kernel
def _fed_bytes(program: ProgramArrays, local: LocalArrays, graph: KernelGraph, k: int) -> float:
    """Bytes that the vector unit is fed with besides: f32 of what is summed, or is written narrower
    (`kernel_rooflines.py`)."""
    op = graph.nodes.subject[k]
    if program.ops.op_class[op] == REDUCE:
        return F32_BYTES * local.ops.in_step[op]
    value = program.result_ptr[op]
    is_fed = graph.nodes.matrix_work[k] > 0 or program.ops.op_class[op] == ELEMENTWISE
    if not is_fed or program.values.element_bytes[value] >= F32_BYTES:
        return 0.0
    return graph.nodes.written[k] * F32_BYTES / program.values.element_bytes[value]
