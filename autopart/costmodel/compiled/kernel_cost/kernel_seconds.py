"""Seconds of kernels: a roofline (`roofline.py`), over memory behind a cache.

Bytes are those that pass HBM. What was touched a short while ago is still on the chip (VMEM, a GPU's L2): a read is
free if fewer than `on_chip_bytes` were touched since. Where the compiler says what lies there (`stays_on_chip.py`), it
is free if what nodes wrote waits there, or if what lies in HBM is brought beside other kernels. A result all of whose
reads are free is never written out, unless a loop or a branch hands it on; so it is there with what collectives read
and leave. Kernels joined by `multi_output.py` launch once and read what they share once.

What a turn of a loop reads whole is still there from the turn before, where all that a turn touches fits on the chip
(`loop_residency.py`): the weights of an LSTM pass HBM once a loop. What a TPU's matmuls in a loop read in f32 and the
loop does not change is rounded to bf16 before it, once: each turn reads half the bytes.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import (
    CARRIED_SHARE,
    F32_BYTES,
    NARROW_SHARE,
    LocalArrays,
    ProgramArrays,
    Records,
)
from autopart.costmodel.compiled.buffer_assignment.layout_copies import READ_AND_WRITE
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, MATMUL, REDUCE, UPDATE
from autopart.costmodel.compiled.fusion.kernel_graph import (
    KERNEL,
    LOOKED_UP,
    OVERWRITTEN,
    ROUNDED,
    STREAMED,
    KernelGraph,
)
from autopart.costmodel.compiled.fusion.reread_operands import reread
from autopart.costmodel.compiled.kernel_cost.kernel_rooflines import element_bytes, in_f32, kernel_rooflines
from autopart.costmodel.compiled.memory_space_assignment.loop_residency import is_argument, share_on_chip, turns_on_chip
from autopart.costmodel.compiled.memory_space_assignment.memory_boundedness import ChipRoom
from autopart.costmodel.compiled.memory_space_assignment.stays_on_chip import NOT_ASKED, waits_on_chip
from autopart.costmodel.compiled.roofline import roofline_s
from autopart.costmodel.compiled.slots import NEVER, before
from autopart.costmodel.hardware.devices import HBM, ON_CHIP

BESIDE_SHARE = 0.125
"""An output of at most this share of the memory on the chip is left there, and goes to HBM beside later kernels."""


NODE_FIELDS = np.dtype(
    [
        ("seconds", np.float64), ("hbm", np.float64), ("beside", np.float64), ("work", np.float64),
        ("vector", np.float64), ("largest", np.float64), ("read", np.float64), ("on_chip", np.float64),
        ("walked", np.float64), ("left_f32", np.float64), ("product", np.float64), ("began", np.float64),
        ("matrix_dtype", np.int8), ("is_conv", np.bool_), ("since", np.int32),
    ],
    align=True,
)  # fmt: skip

BUFFER_FIELDS = np.dtype(
    [
        ("plain", np.float64), ("last", np.int32), ("touched_at", np.float64), ("written_by", np.int32),
        ("seen", np.int32), ("readers", np.int32), ("rounded", np.bool_), ("until", np.int32),
        ("touched_slot", np.int32),
    ],
    align=True,
)  # fmt: skip


@kernel
def kernel_seconds(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    leader: np.ndarray,
    copied: np.ndarray,
    plain: np.ndarray,
    buffers: Buffers,
    row: np.ndarray,
    times: np.ndarray,
    assigns: bool,
    held: np.ndarray,
    room: np.ndarray,
    elapsed: np.ndarray,
    leaves: np.ndarray,
    chip: ChipRoom,
    nodes: Records,
    cache: Records,
) -> None:
    """Fills in `nodes`: seconds and HBM bytes of each, zero where it runs in another; one run, loops not multiplied.

    order      nodes by slot
    copied[k]  bytes of arguments that node k needs in another layout: they and its results are copied once more
    plain[b]   bytes of buffer b if it is written to memory of its own
    times[k]   how many such nodes run there, with those that are left out: all that they touch is on chip after it
    cache      a row per buffer, of those that nodes read or write and that loops and branches hand on; `written_by` is
               -1 then for what is, or at some time has to be, in HBM
    assigns    the compiler says what lies on the chip
    held, room  scratch: see `turns_on_chip`; elapsed: see `_count_bytes`; leaves: see `waits_on_chip`
    """
    _begin(program, graph, plain, buffers, nodes, cache)
    turns_on_chip(program, graph, buffers.bytes, row[ON_CHIP], cache, held, room)
    if assigns:
        waits_on_chip(program, local, graph, order, slot, buffers, row, times, leaves, chip, cache)
    _count_bytes(
        program, local, graph, order, slot, leader, copied, buffers.bytes, row, times, assigns, held, room, elapsed,
        chip, nodes, cache,
    )  # fmt: skip
    kernel_rooflines(program, local, graph, leader, nodes, row)


@kernel
def _begin(
    program: ProgramArrays, graph: KernelGraph, plain: np.ndarray, buffers: Buffers, nodes: Records, cache: Records
) -> None:
    """Fills in what `_count_bytes` begins with."""
    last = buffers.last
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            _not_touched(plain, last, value, cache)
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            _not_touched(plain, last, program.uses.operands[use], cache)
    for k in range(nodes.shape[0]):
        nodes.seconds[k] = nodes.hbm[k] = nodes.beside[k] = nodes.work[k] = nodes.vector[k] = nodes.largest[k] = 0.0
        nodes.read[k] = nodes.on_chip[k] = nodes.walked[k] = nodes.left_f32[k] = nodes.product[k] = 0.0
        nodes.since[k] = NEVER
        nodes.matrix_dtype[k], nodes.is_conv[k] = graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            if buffers.made[graph.reads.read_buffer[i]] == 0:
                _not_touched(plain, last, graph.reads.read_buffer[i], cache)
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            _not_touched(plain, last, graph.write_buffer[i], cache)
        if graph.nodes.kind[k] == KERNEL:
            op = graph.nodes.subject[k]
            for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
                _not_touched(plain, last, value, cache)
    for k in range(nodes.shape[0]):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            cache.readers[graph.reads.read_buffer[i]] += 1


@kernel
def _not_touched(plain: np.ndarray, last: np.ndarray, buffer: int, cache: Records) -> None:
    """Fills in the row of a buffer."""
    cache.plain[buffer], cache.last[buffer], cache.touched_at[buffer] = plain[buffer], last[buffer], -np.inf
    cache.written_by[buffer] = cache.seen[buffer] = -1
    cache.readers[buffer] = 0
    cache.rounded[buffer] = False
    cache.until[buffer] = NOT_ASKED


@kernel
def _count_bytes(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    leader: np.ndarray,
    copied: np.ndarray,
    taken_bytes: np.ndarray,
    row: np.ndarray,
    times: np.ndarray,
    assigns: bool,
    held: np.ndarray,
    room: np.ndarray,
    elapsed: np.ndarray,
    chip: ChipRoom,
    nodes: Records,
    cache: Records,
) -> None:
    """Fills in the work of every kernel, and the bytes that pass HBM.

    nodes  hbm, largest: bytes that pass HBM, and those of one array; beside: that pass it beside other kernels;
           read: bytes of reads; on_chip: of those that do not; walked: f32 bytes of the largest array that it walks
           through; product: of the results of its matrix products; left_f32: bytes of such arrays that it writes;
           since: the slot at which what it finds on the chip was touched, the earliest; `NEVER`: it finds nothing;
           began: what had elapsed before it, or the product it runs with; work, vector, matrix_dtype, is_conv: of all
           that runs in the kernel
    cache  per buffer its plain bytes and the last slot it is read at; touched_at: how many bytes had been touched when
           it was, and touched_slot: where; written_by: the kernel that will have written it if it leaves the chip;
           seen: the kernel that has it;
           rounded: a loop has had it rounded, once: read, passed on in f32, written in bf16; until: the last slot
           at which it waits there (`stays_on_chip.py`), -1: it does not; readers: how many kernels read it
    elapsed[scope]  seconds of its kernels so far
    """
    now, on_chip_bytes, window = 0.0, row[ON_CHIP], row[ON_CHIP]
    for scope in range(elapsed.shape[0]):
        elapsed[scope] = 0.0
    ran = -1
    for k in order:
        if ran >= 0:
            _add_elapsed(graph, leader, ran, elapsed, nodes, row)
        ran, head = k, leader[k]
        nodes.began[k] = _began(program, graph, cache, nodes, k, elapsed[graph.nodes.scope[k]])
        if graph.nodes.kind[k] == KERNEL:
            again = reread(program, local, graph.nodes, k, on_chip_bytes if assigns else 0.0)
            nodes.work[head] += again * graph.nodes.matrix_work[k]
            nodes.vector[head] += graph.nodes.vector_flop[k]
            if copied[k] > 0:
                nodes.hbm[head] += READ_AND_WRITE * (copied[k] + graph.nodes.written[k])
            if graph.nodes.matrix_work[k] > 0:
                nodes.matrix_dtype[head], nodes.is_conv[head] = graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k]
                nodes.product[head] += in_f32(program, local, program.result_ptr[graph.nodes.subject[k]])
        in_place = False
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer, taken = graph.reads.read_buffer[i], graph.reads.read_bytes[i]
            whole = cache.plain[buffer] if cache.plain[buffer] > 0 else taken
            taken = min(taken, whole)
            changes = graph.reads.read_how[i] & OVERWRITTEN and not _is_kept(program, buffer)
            if changes and cache.last[buffer] <= slot[k]:
                in_place, maker = True, cache.written_by[buffer]
                gone = _has_left(cache, buffer, slot[k], now + whole, window)
                if not gone:
                    nodes.since[head] = min(nodes.since[head], cache.touched_slot[buffer])
                elif maker >= 0:
                    _leaves_chip(graph, nodes, cache, buffer, whole)
                continue
            if cache.seen[buffer] == head:
                continue
            cache.seen[buffer] = head
            nodes.read[head] += taken
            rounding = NARROW_SHARE if graph.reads.read_how[i] & ROUNDED else 1.0
            if rounding < 1.0 and not cache.rounded[buffer]:
                cache.rounded[buffer] = True
                once = program.scopes.scope_trips[local.home[buffer]] / program.scopes.scope_trips[graph.nodes.scope[k]]
                nodes.hbm[head] += (1.0 + 2.0 / rounding) * taken * once
            if assigns and chip.brought[i]:
                nodes.on_chip[head] += taken
                nodes.beside[head] += taken
                if cache.written_by[buffer] >= 0:
                    _leaves_chip(graph, nodes, cache, buffer, whole)
            elif _has_left(cache, buffer, slot[k], now + whole, window):
                again = 0.0
                if taken >= rounding * _whole_bytes(local, buffer):
                    is_given = assigns and rounding == 1.0 and is_argument(program, buffer)
                    again = taken * share_on_chip(
                        program, graph.nodes.scope[k], taken, is_given, held, elapsed, nodes.began[k], row[HBM],
                        room[graph.nodes.scope[k]],
                    )  # fmt: skip
                nodes.on_chip[head] += again
                nodes.hbm[head] += taken - again
                nodes.largest[head] = max(nodes.largest[head], taken - again)
                if cache.written_by[buffer] >= 0:
                    _leaves_chip(graph, nodes, cache, buffer, whole)
            else:
                nodes.on_chip[head] += taken
                nodes.since[head] = min(nodes.since[head], cache.touched_slot[buffer])
            now += taken * times[k]
            if not graph.reads.read_how[i] & LOOKED_UP:
                cache.touched_at[buffer], cache.touched_slot[buffer] = now, slot[k]
        if graph.nodes.kind[k] != KERNEL:
            moved, source = graph.write_buffer[graph.write_ptr[k]], graph.reads.read_buffer[graph.read_ptr[k]]
            fits = not assigns or cache.plain[source] + graph.nodes.written[k] <= CARRIED_SHARE * on_chip_bytes
            now += graph.nodes.written[k] * times[k]
            cache.touched_at[moved], cache.touched_slot[moved] = now if fits else -np.inf, slot[k]
            cache.written_by[moved] = k if assigns and fits else -1
            continue
        op = graph.nodes.subject[k]
        if program.ops.carry_body[op] >= 0:
            continue
        nodes.walked[head] = max(nodes.walked[head], _walked(program, local, graph, k))
        if in_place and program.ops.op_class[op] == UPDATE:
            nodes.hbm[head] += local.ops.update_bytes[op]
            continue
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            written, left = local.values.native_bytes[value], local.values.left_in[value]
            if taken_bytes[value] == 0 and cache.last[value] == slot[k]:
                written = 0.0
            made = program.ops.op_class[op] == ELEMENTWISE or graph.nodes.matrix_work[k] > 0
            rounded = cache.plain[left] < written
            is_f32 = program.values.element_bytes[value] >= F32_BYTES and not rounded
            if made and is_f32:
                nodes.left_f32[head] += written
            if cache.last[left] < 0 or (left != value and not assigns):
                nodes.hbm[head] += local.values.native_bytes[value]
            elif cache.plain[left] > 0 and not (taken_bytes[left] == 0 and cache.last[left] == slot[k]):
                now += cache.plain[left] * times[k]
                cache.touched_at[left], cache.touched_slot[left], cache.written_by[left] = now, slot[k], head
                cache.seen[left] = head
            else:
                cache.seen[left] = head
    _hand_on(program, local, graph, on_chip_bytes, nodes, cache)
    outlive = before(program.ops.shape[0])
    for k in range(nodes.shape[0]):
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            buffer = graph.write_buffer[i]
            if cache.written_by[buffer] >= 0 and cache.last[buffer] >= outlive:
                beside = cache.plain[buffer] <= BESIDE_SHARE * on_chip_bytes
                _leaves_chip(graph, nodes, cache, buffer, 0.0 if beside else cache.plain[buffer])


@kernel
def _has_left(cache: Records, buffer: int, slot: int, touched: float, window: float) -> bool:
    """True if a buffer is no longer on the chip."""
    if cache.until[buffer] != NOT_ASKED:
        return cache.until[buffer] < slot
    return touched - cache.touched_at[buffer] > window


@kernel
def _leaves_chip(graph: KernelGraph, nodes: Records, cache: Records, buffer: int, hbm_bytes: float) -> None:
    """Adds bytes of a buffer to its kernel, which writes it to HBM; a collective's writes are in its own seconds."""
    maker = cache.written_by[buffer]
    if cache.until[buffer] >= 0:
        nodes.beside[maker] += hbm_bytes
    elif graph.nodes.kind[maker] == KERNEL:
        nodes.hbm[maker] += hbm_bytes
        nodes.largest[maker] = max(nodes.largest[maker], hbm_bytes)
    cache.written_by[buffer] = -1


@kernel
def _add_elapsed(
    graph: KernelGraph, leader: np.ndarray, k: int, elapsed: np.ndarray, nodes: Records, row: np.ndarray
) -> None:
    """Adds the seconds of node k, as far as they are known when it has run."""
    if graph.nodes.kind[k] == KERNEL and leader[k] == k:
        elapsed[graph.nodes.scope[k]] += roofline_s(
            nodes.work[k], nodes.matrix_dtype[k], nodes.is_conv[k], nodes.vector[k], nodes.hbm[k], nodes.largest[k], row
        )


@kernel
def _began(
    program: ProgramArrays, graph: KernelGraph, cache: Records, nodes: Records, k: int, elapsed_s: float
) -> float:
    """What had elapsed in a turn before a kernel; a product runs with the one whose result no other kernel reads."""
    if graph.nodes.kind[k] == KERNEL and graph.nodes.matrix_work[k] > 0:
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            if buffer >= program.values.shape[0] or program.ops.op_class[program.values.value_op[buffer]] != MATMUL:
                continue
            maker = cache.written_by[buffer] if cache.readers[buffer] == 1 else -1
            same = maker >= 0 and graph.nodes.kind[maker] == KERNEL
            if same and graph.nodes.scope[maker] == graph.nodes.scope[k]:
                elapsed_s = min(elapsed_s, nodes.began[maker])
    return elapsed_s


@kernel
def _hand_on(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, on_chip_bytes: float, nodes: Records, cache: Records
) -> None:
    """Adds the bytes of what a loop begins with, unless it stays on the chip, and of what its body, or a branch, leaves
    for what comes after it."""
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            left, moved = program.uses.operands[use], local.uses.use_buffer[use]
            if program.ops.op_scope[program.values.value_op[left]] == program.ops.op_scope[op]:
                begins = program.ops.carry_body[op] >= 0 and cache.plain[left] > CARRIED_SHARE * on_chip_bytes
                if begins and cache.written_by[left] >= 0:
                    _leaves_chip(graph, nodes, cache, left, cache.plain[left])
                continue
            if cache.written_by[left] >= 0:
                beside = cache.plain[left] <= BESIDE_SHARE * on_chip_bytes
                _leaves_chip(graph, nodes, cache, left, 0.0 if beside else cache.plain[left])
            if moved >= program.values.shape[0] and cache.written_by[moved] >= 0:
                _leaves_chip(graph, nodes, cache, moved, 0.0)


@kernel
def _whole_bytes(local: LocalArrays, buffer: int) -> float:
    """Bytes of a buffer, be it an argument or not."""
    values = local.values.shape[0]
    return local.values.settled_bytes[buffer] if buffer < values else local.moves.moved_bytes[buffer - values]


@kernel
def _walked(program: ProgramArrays, local: LocalArrays, graph: KernelGraph, k: int) -> float:
    """Bytes in f32 of what an elementwise op or a reduction walks through; 0 for others."""
    op, most = graph.nodes.subject[k], 0.0
    if program.ops.op_class[op] == ELEMENTWISE:
        return in_f32(program, local, program.result_ptr[op])
    if program.ops.op_class[op] == REDUCE:
        most = F32_BYTES * local.ops.in_step[op]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            if graph.reads.read_how[i] & STREAMED:
                of_one = element_bytes(program, local, graph.reads.read_buffer[i])
                most = max(most, graph.reads.read_bytes[i] * F32_BYTES / of_one)
    return most


@kernel
def _is_kept(program: ProgramArrays, buffer: int) -> bool:
    """True for an argument that the caller still has: what changes it is made from a copy."""
    return is_argument(program, buffer) and not program.values.is_donated[buffer]
