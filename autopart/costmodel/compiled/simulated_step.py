"""One step on paper: when each node of a kernel graph runs, for how long, and what lives meanwhile.

    planned    program order; reductions wait for each other
    slot       what can run early does, and kernels join                 -> seconds of kernels and collectives
    buffers    when each is made and read last, and in whose memory      -> bytes that live at each slot

One kernel for all of it: each call of a kernel from Python looks at every array that it is given, and a search runs a
step in about as much time as twenty such calls.
"""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (an element of an array is a plain number in a kernel; NumPy's types know no fields)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.buffer_assignment.layout_copies import (
    copied_bytes,
    output_copies,
    transposed_nodes,
)
from autopart.costmodel.compiled.buffer_assignment.liveness import (
    Buffers,
    last_slots,
    made_at,
    run_early,
    structure_reads,
)
from autopart.costmodel.compiled.buffer_assignment.memory import (
    carries_on_chip,
    live_bytes,
    live_ranges,
    place_outputs,
    plain_sizes,
    stay_on_chip,
)
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, KernelGraph
from autopart.costmodel.compiled.fusion.left_out import LeftOut, times_there
from autopart.costmodel.compiled.fusion.multi_output import join_kernels
from autopart.costmodel.compiled.kernel_cost.kernel_seconds import BUFFER_FIELDS, NODE_FIELDS, kernel_seconds
from autopart.costmodel.compiled.latency_hiding_scheduler import as_late_as_read, gradients_last, in_flight, sent_early
from autopart.costmodel.compiled.links.bf16_collectives import rounded_bytes
from autopart.costmodel.compiled.links.collective_combiner import Batches, Wires, combine_reductions
from autopart.costmodel.compiled.links.redistribution_costs import (
    COPIED_BYTES,
    COPY_S,
    EXTRA_BYTES,
    SECONDS,
    SPELLINGS,
)
from autopart.costmodel.compiled.memory_space_assignment.memory_boundedness import ChipRoom
from autopart.costmodel.compiled.slots import order_by_slot, slot_count, stretch_count
from autopart.costmodel.hardware.devices import ON_CHIP, Device


class DeviceFacts(NamedTuple):
    """What a step asks of a device, and of the options of a simulator.

    row                      `device_row`
    narrows, joins, copies   `narrows_operands`, `joins_results`; `copies_updates` where layout copies are counted
    assigns                  `assigns_on_chip`
    by_shape                 results are written into operands of their own shape alone
    copy_bytes_per_s, round_bytes_per_s   at which copies are made, and arguments rounded
    workspace_bytes          what the library works in that computes products
    """

    row: np.ndarray
    narrows: bool
    joins: bool
    copies: bool
    assigns: bool
    by_shape: bool
    copy_bytes_per_s: float
    round_bytes_per_s: float
    workspace_bytes: float

    @staticmethod
    def of(device: Device, row: np.ndarray, layout_copies: bool) -> DeviceFacts:
        """Those of a device."""
        matmul, rate = device.around_matmul, device.hbm_bytes_per_s * device.hbm_efficiency
        return DeviceFacts(
            row, bool(matmul.narrows_operands), bool(matmul.joins_results),
            bool(matmul.copies_updates and layout_copies), bool(device.assigns_on_chip), device.is_xla_gpu,
            float(rate), float(rate * device.stream_share),
            0.0 if device.library is None else float(device.library.workspace_bytes),
        )  # fmt: skip


class Moves(NamedTuple):
    """Prices of redistributions.

    plan_rows[k]   the row of node k's plan in `figures`; 0 for kernels
    figures        as in `KnownPlans`
    narrow[r]      redistribution r is moved as bf16
    def_values     the values that are redistributed after their ops (`DeviceLocal.at_def`)
    own_s[k]       seconds of the collectives that the program itself has; empty where it has none
    wires          by which combined collectives are priced
    """

    plan_rows: np.ndarray
    figures: np.ndarray
    narrow: np.ndarray
    def_values: np.ndarray
    own_s: np.ndarray
    wires: Wires


class Step(NamedTuple):
    """What is found out: the fields of `Simulation` of the same names, and

    timed         per node, as `compute.NODE_FIELDS`: its seconds become those with copies and rounding
    link_s        per node: seconds on the links
    """

    slot: np.ndarray
    leader: np.ndarray
    trips: np.ndarray
    node_s: np.ndarray
    link_s: np.ndarray
    extra_bytes: np.ndarray
    timed: Records
    buffers: Buffers
    live: np.ndarray
    each_output_bytes: np.ndarray

    @staticmethod
    def empty(nodes: int, buffers: int, ops: int, outputs: int, empty: Empty) -> Step:
        """Room for a step."""
        numbers, figures, when = empty((2, nodes), np.int32), empty((4, nodes)), empty((3, buffers), np.int32)
        return Step(
            slot=numbers[0], leader=numbers[1],
            trips=figures[0], node_s=figures[1], link_s=figures[2], extra_bytes=figures[3],
            timed=empty(nodes, NODE_FIELDS), buffers=Buffers(when[0], when[1], when[2], empty(buffers)),
            live=empty(slot_count(ops) + 2), each_output_bytes=empty(outputs),
        )  # fmt: skip


class Scratch(NamedTuple):
    """What a step needs besides; each field is what the functions that take it call it.

    ends                see `order_by_slot`
    fence               per op
    structure, maker, reader, possible, depth, plain, marked, also, cache   per buffer
    planned, order, joined, saved_s, copied, traffic, times, transposed   per node
    gathered            per output
    held, room, elapsed per scope
    """

    ends: np.ndarray
    fence: np.ndarray
    structure: np.ndarray
    maker: np.ndarray
    reader: np.ndarray
    possible: np.ndarray
    depth: np.ndarray
    plain: np.ndarray
    marked: np.ndarray
    also: np.ndarray
    cache: Records
    planned: np.ndarray
    order: np.ndarray
    joined: np.ndarray
    saved_s: np.ndarray
    copied: np.ndarray
    traffic: np.ndarray
    times: np.ndarray
    transposed: np.ndarray
    gathered: np.ndarray
    held: np.ndarray
    room: np.ndarray
    elapsed: np.ndarray
    batches: Batches
    chip: ChipRoom

    @staticmethod
    def empty(
        nodes: int, buffers: int, reads: int, ops: int, outputs: int, scopes: int, kinds: int, empty: Empty
    ) -> Scratch:
        """Room for a step; `kinds` as many as there are kinds of reductions that may be combined."""
        by_buffer, marks = empty((6, buffers), np.int32), empty((2, buffers), np.bool_)
        by_node, bytes_of, by_kind = (
            empty((5, nodes), np.int32),
            empty((4, nodes)),
            empty((7, kinds), np.int32),
        )
        batches = Batches(
            needed=by_buffer[0], held=empty(kinds), joined=by_kind[0], deadline=by_kind[1], open_batch=by_kind[2],
            scope=by_kind[3], stand_bytes=empty(kinds), stand_joined=by_kind[4], begun_there=by_kind[5],
            batch_of=by_node[0], ends=by_node[1], ready=by_kind[6],
        )  # fmt: skip
        return Scratch(
            ends=empty(stretch_count(ops), np.int32), fence=empty(ops, np.int32),
            structure=by_buffer[1], maker=by_buffer[2], reader=by_buffer[3], possible=by_buffer[4],
            depth=by_buffer[5],
            plain=empty(buffers), marked=marks[0], also=marks[1], cache=empty(buffers, BUFFER_FIELDS),
            planned=by_node[2], order=by_node[3], joined=by_node[4],
            saved_s=bytes_of[0], copied=bytes_of[1], traffic=bytes_of[2], times=bytes_of[3],
            transposed=empty(nodes, np.bool_), gathered=empty(outputs, np.bool_), held=empty(scopes),
            room=empty(scopes), elapsed=empty(scopes), batches=batches,
            chip=ChipRoom.empty(nodes, buffers, reads, empty),
        )  # fmt: skip


@kernel
def _begin(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, device: DeviceFacts, scratch: Scratch, step: Step
) -> None:
    """Begins with program order: fills in when nodes are planned, which run by themselves, and plain sizes."""
    structure_reads(program, local, scratch.structure)
    for k in range(graph.nodes.shape[0]):
        step.leader[k], scratch.planned[k] = k, graph.nodes.slot[k]
    plain_sizes(
        program, local, graph, scratch.structure, step.leader, device.narrows, scratch.maker, scratch.marked,
        scratch.plain,
    )  # fmt: skip


@kernel
def run_step(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    device: DeviceFacts,
    moves: Moves,
    left_out: LeftOut,
    scratch: Scratch,
    step: Step,
) -> None:
    """Fills in `step`."""
    buffers, leader, plain, planned = step.buffers, step.leader, scratch.plain, scratch.planned
    nodes = graph.nodes.shape[0]
    _begin(program, local, graph, device, scratch, step)
    if moves.wires.by_dependence:
        as_late_as_read(program, local, graph, buffers.made, planned)
        gradients_last(program, local, graph, buffers.made, scratch.marked, scratch.also, scratch.room, planned)
        made_at(program, graph, planned, buffers.made)
        sent_early(program, graph, buffers.made, scratch.marked, scratch.also, planned)
    combine_reductions(
        local,
        graph,
        moves.plan_rows,
        moves.figures,
        moves.wires,
        buffers.made,
        left_out,
        moves.def_values,
        scratch.batches,
        planned,
        scratch.saved_s,
    )
    _copies(program, local, graph, device, moves, scratch)
    made_at(program, graph, planned, buffers.made)
    _remember(program, local, graph, planned, device.by_shape, scratch, step)
    run_early(program, graph, planned, buffers, scratch.fence, step.slot, scratch.possible, scratch.depth)
    order_by_slot(step.slot, nodes, scratch.ends, scratch.order)
    join_kernels(
        program, local, graph, scratch.order, step.slot, buffers.made, scratch.possible, scratch.depth, device.joins,
        leader, scratch.joined, scratch.maker, scratch.reader,
    )  # fmt: skip
    plain_sizes(program, local, graph, scratch.structure, leader, device.narrows, scratch.maker, scratch.marked, plain)
    _remember(program, local, graph, step.slot, device.by_shape, scratch, step)
    order_by_slot(step.slot, nodes, scratch.ends, scratch.order)
    times_there(left_out, program, graph, moves.def_values, step.slot, scratch.maker, scratch.times)
    kernel_seconds(
        program, local, graph, scratch.order, step.slot, leader, scratch.copied, plain, buffers, device.row,
        scratch.times, device.assigns, scratch.held, scratch.room, scratch.elapsed, step.live,
        scratch.chip, step.timed, scratch.cache,
    )  # fmt: skip
    _add_moves(program, local, graph, device, moves, scratch, step)
    if device.assigns:
        stay_on_chip(graph, scratch.cache, buffers)
        carries_on_chip(program, local, scratch.held, device.row[ON_CHIP], buffers)
    if moves.wires.by_dependence:
        in_flight(graph, scratch.order, step.slot, step.timed, step.link_s, scratch.times, buffers)
    live_bytes(buffers, step.slot, step.extra_bytes, step.live)


@kernel
def _copies(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    device: DeviceFacts,
    moves: Moves,
    scratch: Scratch,
) -> None:
    """Fills in what is copied for its layout: nothing on devices where such copies are not made."""
    transposed, copied = scratch.transposed, scratch.copied
    if device.copies:
        transposed_nodes(program, graph, scratch.marked, scratch.also, transposed)
        copied_bytes(program, local, graph, transposed, copied)
        output_copies(
            program, local, graph, moves.plan_rows, moves.figures, device.row[ON_CHIP] if device.assigns else 0.0,
            scratch.maker, scratch.gathered, scratch.traffic,
        )  # fmt: skip
    else:
        for k in range(transposed.shape[0]):
            transposed[k], copied[k], scratch.traffic[k] = False, 0.0, 0.0
        for i in range(scratch.gathered.shape[0]):
            scratch.gathered[i] = False


@kernel
def _remember(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    slot: np.ndarray,
    by_shape: bool,
    scratch: Scratch,
    step: Step,
) -> None:
    """Fills in the buffers, when nodes run at `slot`, and the bytes of outputs that take over no argument's memory."""
    last_slots(program, local, graph, slot, scratch.structure, step.buffers.last)
    live_ranges(
        program, local, graph, slot, step.leader, scratch.plain, by_shape, scratch.reader, scratch.maker, step.buffers
    )
    place_outputs(
        program, local, graph, scratch.transposed, scratch.gathered, step.buffers, scratch.marked,
        step.each_output_bytes,
    )  # fmt: skip


@kernel
def _add_moves(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    device: DeviceFacts,
    moves: Moves,
    scratch: Scratch,
    step: Step,
) -> None:
    """Adds what redistributions and copies take to the seconds and bytes of nodes."""
    timed, figures, rounded_before = step.timed, moves.figures, scratch.marked
    rounded_before[:] = False
    for k in range(timed.shape[0]):
        row = moves.plan_rows[k]
        rounded = rounded_bytes(program, local, graph, moves.narrow, k)
        if rounded > 0.0 and graph.nodes.scope[k] == 0:
            value = local.moves.moved_value[graph.nodes.subject[k]]
            if rounded_before[value] and figures[SPELLINGS, row] > 1:
                rounded = 0.0
            rounded_before[value] = True
        copied_s = figures[COPY_S, row] + scratch.traffic[k] / device.copy_bytes_per_s
        timed.seconds[k] += copied_s + rounded / device.round_bytes_per_s
        timed.hbm[k] += figures[COPIED_BYTES, row] + scratch.traffic[k] + rounded
        own_s = moves.own_s[k] if moves.own_s.shape[0] > 0 else 0.0
        step.link_s[k] = figures[SECONDS, row] - scratch.saved_s[k] + own_s
        step.node_s[k] = timed.seconds[k] + step.link_s[k]
        step.extra_bytes[k] = figures[EXTRA_BYTES, row] + scratch.copied[k]
        if graph.nodes.kind[k] == KERNEL:
            step.extra_bytes[k] += local.ops.beside_bytes[graph.nodes.subject[k]]
        if graph.nodes.matrix_flop[k] > 0.0:
            step.extra_bytes[k] += device.workspace_bytes
        step.trips[k] = program.scopes.scope_trips[graph.nodes.scope[k]]
