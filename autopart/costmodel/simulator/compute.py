"""Seconds of kernels: a roofline, over memory behind a cache.

    compute = max(matrix flop / matrix rate, vector flop / vector rate), or their sum where the units work in turn
    memory  = bytes / HBM rate; without matrix work at least the bytes of the largest array / rate of one stream
    seconds = launch + max(compute, memory) + unhidden share x min(compute, memory)

Bytes are those that pass HBM. What was touched a short while ago is still on the chip (VMEM that the TPU compiler
assigns, a GPU's L2): a read is free if fewer than `on_chip_bytes` were touched since, and a result all of whose reads
are free is never written out. Kernels joined by `multi_output.py` launch once and read what they share once.
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.hardware.devices import (
    CONV_SHARE,
    HBM,
    IN_TURN,
    LAUNCH,
    MATMUL_LAUNCH,
    ON_CHIP,
    STREAM,
    UNHIDDEN,
    VECTOR,
)
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays, Records
from autopart.costmodel.simulator.kernel_graph import KERNEL, OVERWRITTEN, KernelGraph
from autopart.costmodel.simulator.liveness import Buffers
from autopart.costmodel.simulator.op_classes import UPDATE
from autopart.costmodel.simulator.slots import before


@kernel
def roofline_s(
    matrix_work: float,
    dtype: int,
    is_conv: bool,
    vector_flop: float,
    hbm_bytes: float,
    largest_bytes: float,
    row: np.ndarray,
) -> float:
    """Seconds of one kernel on the device of `row` (`device_row`); `largest_bytes` of its bytes are one array's."""
    matrix_s = matrix_work / (row[dtype] * (row[CONV_SHARE] if is_conv else 1.0))
    vector_s = vector_flop / row[VECTOR]
    compute_s = matrix_s + vector_s if row[IN_TURN] else max(matrix_s, vector_s)
    memory_s = hbm_bytes / row[HBM]
    if matrix_work == 0:
        memory_s = max(memory_s, largest_bytes / row[STREAM])
    launch_s = row[MATMUL_LAUNCH] if matrix_work > 0 else row[LAUNCH]
    return launch_s + max(compute_s, memory_s) + row[UNHIDDEN] * min(compute_s, memory_s)


NODE_FIELDS = np.dtype(
    [
        ("seconds", np.float64), ("hbm", np.float64), ("work", np.float64), ("vector", np.float64),
        ("largest", np.float64), ("matrix_dtype", np.int8), ("is_conv", np.bool_),
    ],
    align=True,
)  # fmt: skip

BUFFER_FIELDS = np.dtype(
    [
        ("plain", np.float64), ("last", np.int64), ("touched_at", np.float64), ("written_by", np.int32),
        ("seen", np.int32),
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
    nodes: Records,
    cache: Records,
) -> None:
    """Fills in `nodes`: seconds and HBM bytes of each, zero where it runs in another; one run, loops not multiplied.

    order      nodes by slot
    copied[k]  bytes of arguments that node k needs in another layout: they and its results are copied once more
    plain[b]   bytes of buffer b if it is written to memory of its own
    times[k]   how many such nodes run there, with those that are left out: all that they touch is on chip after it
    cache      scratch, a row per buffer
    """
    _begin(graph, plain, buffers.last, nodes, cache)
    _count_bytes(program, local, graph, order, slot, leader, copied, buffers.bytes, row[ON_CHIP], times, nodes, cache)
    _rooflines(graph, leader, nodes, row)


@kernel
def _begin(graph: KernelGraph, plain: np.ndarray, last: np.ndarray, nodes: Records, cache: Records) -> None:
    """Fills in what `_count_bytes` begins with."""
    for k in range(nodes.shape[0]):
        nodes.seconds[k] = nodes.hbm[k] = nodes.work[k] = nodes.vector[k] = nodes.largest[k] = 0.0
        nodes.matrix_dtype[k], nodes.is_conv[k] = graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k]
    for buffer in range(cache.shape[0]):
        cache.plain[buffer], cache.last[buffer], cache.touched_at[buffer] = plain[buffer], last[buffer], -np.inf
        cache.written_by[buffer] = cache.seen[buffer] = -1


@kernel
def _rooflines(graph: KernelGraph, leader: np.ndarray, nodes: Records, row: np.ndarray) -> None:
    """Fills in the seconds of kernels that join no other."""
    for k in range(nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL and leader[k] == k:
            dtype, is_conv, hbm_bytes = nodes.matrix_dtype[k], nodes.is_conv[k], nodes.hbm[k]
            nodes.seconds[k] = roofline_s(
                nodes.work[k], dtype, is_conv, nodes.vector[k], hbm_bytes, nodes.largest[k], row
            )


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
    on_chip_bytes: float,
    times: np.ndarray,
    nodes: Records,
    cache: Records,
) -> None:
    """Fills in the work of every kernel, and the bytes that pass HBM.

    nodes  hbm, largest: bytes that pass HBM, and those of one array; work, vector, matrix_dtype, is_conv: of all that
           runs in the kernel
    cache  per buffer its plain bytes and the last slot it is read at; touched_at: how many bytes had been touched when
           it was; written_by: the kernel that will have written it if it leaves the chip; seen: the kernel that has it
    """
    now = 0.0
    for k in order:
        head = leader[k]
        if graph.nodes.kind[k] == KERNEL:
            nodes.work[head] += graph.nodes.matrix_work[k]
            nodes.vector[head] += graph.nodes.vector_flop[k]
            if copied[k] > 0:
                nodes.hbm[head] += 2 * (copied[k] + graph.nodes.written[k])
            if graph.nodes.matrix_work[k] > 0:
                nodes.matrix_dtype[head], nodes.is_conv[head] = graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k]
        in_place = False
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer, taken = graph.reads.read_buffer[i], graph.reads.read_bytes[i]
            whole = cache.plain[buffer] if cache.plain[buffer] > 0 else taken
            taken = min(taken, whole)
            if graph.reads.read_how[i] & OVERWRITTEN and cache.last[buffer] <= slot[k]:
                in_place = True
                continue
            if cache.seen[buffer] == head:
                continue
            cache.seen[buffer] = head
            if now - cache.touched_at[buffer] + whole > on_chip_bytes:
                nodes.hbm[head] += taken
                nodes.largest[head] = max(nodes.largest[head], taken)
                maker = cache.written_by[buffer]
                if maker >= 0:
                    nodes.hbm[maker] += whole
                    nodes.largest[maker] = max(nodes.largest[maker], whole)
                    cache.written_by[buffer] = -1
            now += taken * times[k]
            cache.touched_at[buffer] = now
        if graph.nodes.kind[k] != KERNEL:
            now += graph.nodes.written[k] * times[k]
            cache.touched_at[graph.write_buffer[graph.write_ptr[k]]] = now
            continue
        op = graph.nodes.subject[k]
        if in_place and program.ops.op_class[op] == UPDATE:
            nodes.hbm[head] += local.ops.update_bytes[op]
            continue
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            if local.values.at_def[value] >= 0 or cache.last[value] < 0:
                nodes.hbm[head] += local.values.native_bytes[value]
            elif cache.plain[value] > 0 and not (taken_bytes[value] == 0 and cache.last[value] == slot[k]):
                now += cache.plain[value]
                cache.touched_at[value], cache.written_by[value] = now, head
                cache.seen[value] = head
            else:
                cache.seen[value] = head
    outlive = before(program.ops.shape[0])
    for buffer in range(cache.shape[0]):
        if cache.written_by[buffer] >= 0 and cache.last[buffer] >= outlive:
            nodes.hbm[cache.written_by[buffer]] += cache.plain[buffer]
