"""What waits on the chip for a late reader: what is worth most there, as long as there is room.

    %a = dot ...       16.8 MB on the chip
    ...                1.4 ms, in which four times what the chip holds is touched
    %b = dot %a ...    it is still there, and was never in HBM
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.hardware.devices import FED, HBM, ON_CHIP
from autopart.costmodel.simulator.arrays import F32_BYTES, LocalArrays, ProgramArrays, Records
from autopart.costmodel.simulator.by_worth import put_in_order, take_first
from autopart.costmodel.simulator.held_loops import CARRIED_SHARE, is_argument
from autopart.costmodel.simulator.interval_room import IntervalRoom, clear, most_taken, take
from autopart.costmodel.simulator.kernel_graph import KERNEL, LOOKED_UP, KernelGraph
from autopart.costmodel.simulator.liveness import Buffers
from autopart.costmodel.simulator.op_classes import ELEMENTWISE, REDUCE
from autopart.costmodel.simulator.room import Empty
from autopart.costmodel.simulator.roofline import roofline_s
from autopart.costmodel.simulator.slots import before

FILLS = 8.0
"""The longest wait between two readers, in times that it takes to fill the chip from HBM."""

NOT_ASKED = -2



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
def waits_on_chip(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    buffers: Buffers,
    row: np.ndarray,
    times: np.ndarray,
    places: np.ndarray,
    chip: ChipRoom,
    cache: Records,
) -> None:
    """Fills in cache.until[buffer] and `places`, the bytes that leave the chip, per slot."""
    length = _in_order(program, local, graph, order, row, times, buffers, chip)
    clear(chip.taken)
    put_in_order(chip.queue, length, chip.worth)
    for at in range(places.shape[0]):
        places[at] = 0.0
    for k in order:
        places[slot[k]] += 1.0
    for at in range(1, places.shape[0]):
        places[at] += places[at - 1]
    while length > 0:
        buffer = take_first(chip.queue, length, chip.worth)
        length -= 1
        if chip.made_at[buffer] >= 0:
            cache.until[buffer] = -1
            _keep(program, local, graph, order, slot, buffers, row, places, chip, cache, buffer)
        else:
            _bring(graph, order, row, chip, chip.first[buffer])


@kernel
def _keep(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    buffers: Buffers,
    row: np.ndarray,
    places: np.ndarray,
    chip: ChipRoom,
    cache: Records,
    buffer: int,
) -> None:
    """Keeps what a node writes from there to as late a reader as can be; what is left goes to HBM, and comes back."""
    made, size = chip.made_at[buffer], buffers.bytes[buffer]
    turns, room = program.scopes.scope_trips[local.home[buffer]], CARRIED_SHARE * row[ON_CHIP] - size
    limit_s = FILLS * row[ON_CHIP] / row[HBM]
    end, kept, i = int(places[buffers.end[buffer]]) - 1, -1, chip.first[buffer]
    if room < 0 or most_taken(chip.taken, made, made) > room:
        return
    while i >= 0:
        inside = graph.nodes.scope[order[chip.reader[i]]] == local.home[buffer]
        to, since = min(chip.reader[i], end) if inside else end, max(kept, made)
        if to > since and (
            (chip.clock_s[to] - chip.clock_s[since + 1]) / turns > limit_s
            or most_taken(chip.taken, since + 1, to) > room
        ):
            break
        kept, i = max(to, made), chip.following[i]
    if i < 0 and end > kept and most_taken(chip.taken, kept + 1, end) > room:
        return
    if i < 0:
        take(chip.taken, made, max(end, kept), size)
        cache.until[buffer] = max(slot[order[kept]], buffers.end[buffer])
        return
    if kept >= 0 and _leaves(chip, kept, chip.reader[i], size / row[HBM]):
        take(chip.taken, made, kept, size)
        cache.until[buffer] = slot[order[kept]]
    _bring(graph, order, row, chip, i)


@kernel
def _leaves(chip: ChipRoom, kept: int, to: int, copy_s: float) -> bool:
    """True if there is time to copy what is kept until place `kept` to HBM before it is read at place `to`."""
    at, left_s = kept + 1, copy_s
    while left_s > 0 and at < to:
        left_s -= chip.leaving_s[at]
        at += 1
    if left_s > 0:
        return False
    left_s = copy_s
    for place in range(kept + 1, at):
        spent_s = min(left_s, chip.leaving_s[place])
        chip.leaving_s[place] -= spent_s
        left_s -= spent_s
    return True


@kernel
def _bring(graph: KernelGraph, order: np.ndarray, row: np.ndarray, chip: ChipRoom, i: int) -> None:
    """Brings what lies in HBM to the chip for its readers, from read i on, where there are room and time to do so."""
    limit_s, at = FILLS * row[ON_CHIP] / row[HBM], -1
    while i >= 0:
        to, size = chip.reader[i], graph.reads.read_bytes[i]
        room = CARRIED_SHARE * row[ON_CHIP] - size
        if graph.nodes.scope[order[to]] == 0 and not graph.reads.read_how[i] & LOOKED_UP:
            waits = at >= 0 and (
                to == at
                or (chip.clock_s[to] - chip.clock_s[at + 1] <= limit_s and most_taken(chip.taken, at + 1, to) <= room)
            )
            if waits:
                if to > at:
                    take(chip.taken, at + 1, to, size)
                at = to
            else:
                at = to if _is_brought(chip, to, size, room, size / row[HBM], limit_s) else -1
            chip.brought[i] = at == to
        i = chip.following[i]


@kernel
def _is_brought(chip: ChipRoom, to: int, size: float, room: float, copy_s: float, limit_s: float) -> bool:
    """True if there are time and room for a copy from HBM before place `to`; takes both."""
    begin, left_s = to, copy_s
    while left_s > 0 and begin > 0 and chip.clock_s[to] - chip.clock_s[begin] <= limit_s:
        begin -= 1
        left_s -= chip.coming_s[begin]
    if left_s > 0 or most_taken(chip.taken, begin, to) > room:
        return False
    take(chip.taken, begin, to, size)
    left_s = copy_s
    for at in range(to - 1, begin - 1, -1):
        spent_s = min(left_s, chip.coming_s[at])
        chip.coming_s[at] -= spent_s
        left_s -= spent_s
    return True


@kernel
def _in_order(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    row: np.ndarray,
    times: np.ndarray,
    buffers: Buffers,
    chip: ChipRoom,
) -> int:
    """Fills in all but `taken`, by a clock at which all nodes read and write HBM; how many are in the queue."""
    for b in range(chip.first.shape[0]):
        chip.first[b], chip.made_at[b], chip.worth[b] = -1, -1, 0.0
    for at in range(order.shape[0] - 1, -1, -1):
        k = order[at]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            b = graph.reads.read_buffer[i]
            chip.following[i], chip.reader[i], chip.brought[i] = chip.first[b], at, False
            chip.first[b] = i
    outlive, length, clock_s = before(program.ops.shape[0]), 0, 0.0
    for at in range(order.shape[0]):
        k = order[at]
        chip.clock_s[at] = clock_s
        passing, trips = graph.nodes.written[k], program.scopes.scope_trips[graph.nodes.scope[k]]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            passing += graph.reads.read_bytes[i]
        memory_s, compute_s = passing / row[HBM], 0.0
        if graph.nodes.kind[k] == KERNEL:
            compute_s = roofline_s(
                graph.nodes.matrix_work[k], graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k],
                graph.nodes.vector_flop[k], 0.0, 0.0, row,
            )  # fmt: skip
            if row[FED] > 0:
                passing += _fed_bytes(program, local, graph, k)
            clock_s += trips * times[k] * roofline_s(
                graph.nodes.matrix_work[k], graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k],
                graph.nodes.vector_flop[k], passing, 0.0, row,
            )  # fmt: skip
        else:
            clock_s += trips * times[k] * memory_s
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            b = graph.write_buffer[i]
            inside = local.home[b] == graph.nodes.scope[k] and buffers.last[b] < outlive
            if inside and buffers.bytes[b] > 0 and chip.first[b] >= 0:
                chip.made_at[b] = at
                chip.queue[length] = b
                length += 1
            _add_worth(chip, b, buffers.bytes[b] / row[HBM], memory_s, compute_s, trips, chip.made_at[b] == at)
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            b, is_first = graph.reads.read_buffer[i], chip.first[graph.reads.read_buffer[i]] == i
            if is_first and is_argument(program, b):
                chip.queue[length] = b
                length += 1
            _add_worth(
                chip, b, graph.reads.read_bytes[i] / row[HBM], memory_s, compute_s, trips,
                is_first and chip.made_at[b] < 0,
            )  # fmt: skip
    chip.clock_s[order.shape[0]] = clock_s
    for at in range(order.shape[0]):
        chip.coming_s[at] = chip.leaving_s[at] = chip.clock_s[at + 1] - chip.clock_s[at]
    for n in range(length):
        b = chip.queue[n]
        size = buffers.bytes[b] if chip.made_at[b] >= 0 else graph.reads.read_bytes[chip.first[b]]
        if size > 0:
            chip.worth[b] /= np.sqrt(size)
    return length


@kernel
def _add_worth(
    chip: ChipRoom, b: int, bytes_s: float, memory_s: float, compute_s: float, trips: float, is_first: bool
) -> None:
    """Adds what one node gains where a buffer is on the chip: below zero, how far it is from waiting for memory."""
    gain = min(bytes_s, memory_s) * trips if memory_s > compute_s else memory_s - compute_s
    if is_first:
        chip.worth[b] = gain
    elif gain > 0 and chip.worth[b] > 0:
        chip.worth[b] += gain
    else:
        chip.worth[b] = max(chip.worth[b], gain)


@kernel
def _fed_bytes(program: ProgramArrays, local: LocalArrays, graph: KernelGraph, k: int) -> float:
    """Bytes that the vector unit is fed with besides (`compute.py`): f32 of what is summed, or is written narrower."""
    op = graph.nodes.subject[k]
    if program.ops.op_class[op] == REDUCE:
        return F32_BYTES * local.ops.in_step[op]
    value = program.result_ptr[op]
    is_fed = graph.nodes.matrix_work[k] > 0 or program.ops.op_class[op] == ELEMENTWISE
    if not is_fed or program.values.element_bytes[value] >= F32_BYTES:
        return 0.0
    return graph.nodes.written[k] * F32_BYTES / program.values.element_bytes[value]
