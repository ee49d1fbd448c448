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
from numba import njit

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
from autopart.costmodel.simulator.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.simulator.kernel_graph import KERNEL, OVERWRITTEN, KernelGraph
from autopart.costmodel.simulator.liveness import Buffers
from autopart.costmodel.simulator.op_classes import UPDATE
from autopart.costmodel.simulator.slots import before


@njit(cache=True)
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


@njit(cache=True)
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
) -> tuple[np.ndarray, np.ndarray]:
    """(seconds, HBM bytes) per node, zero where it runs in another; one run of each, loops not multiplied.

    order      nodes by slot
    copied[k]  bytes of arguments that node k needs in another layout: they and its results are copied once more
    plain[b]   bytes of buffer b if it is written to memory of its own
    """
    nodes, count, last = graph.nodes.shape[0], plain.shape[0], buffers.last
    seconds, hbm, work, vector = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    largest = np.zeros(nodes)
    touched_at, written_by = np.full(count, -np.inf), np.full(count, -1, np.int64)
    seen = np.full(count, -1, np.int64)
    dtype, is_conv = graph.nodes.matrix_dtype.copy(), graph.nodes.is_conv.copy()
    now = 0.0
    for k in order:
        head = leader[k]
        if graph.nodes.kind[k] == KERNEL:
            work[head] += graph.nodes.matrix_work[k]
            vector[head] += graph.nodes.vector_flop[k]
            if copied[k] > 0:
                hbm[head] += 2 * (copied[k] + graph.nodes.written[k])
            if graph.nodes.matrix_work[k] > 0:
                dtype[head], is_conv[head] = graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k]
        in_place = False
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer, taken = graph.reads.read_buffer[i], graph.reads.read_bytes[i]
            whole = plain[buffer] if plain[buffer] > 0 else taken
            taken = min(taken, whole)
            if graph.reads.read_how[i] & OVERWRITTEN and last[buffer] <= slot[k]:
                in_place = True
                continue
            if seen[buffer] == head:
                continue
            seen[buffer] = head
            if now - touched_at[buffer] + whole > row[ON_CHIP]:
                hbm[head] += taken
                largest[head] = max(largest[head], taken)
                if written_by[buffer] >= 0:
                    hbm[written_by[buffer]] += whole
                    largest[written_by[buffer]] = max(largest[written_by[buffer]], whole)
                    written_by[buffer] = -1
            now += taken
            touched_at[buffer] = now
        if graph.nodes.kind[k] != KERNEL:
            now += graph.nodes.written[k]
            touched_at[graph.write_buffer[graph.write_ptr[k]]] = now
            continue
        op = graph.nodes.subject[k]
        if in_place and program.ops.op_class[op] == UPDATE:
            hbm[head] += local.ops.update_bytes[op]
            continue
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            if local.values.at_def[value] >= 0 or last[value] < 0:
                hbm[head] += local.values.native_bytes[value]
            elif plain[value] > 0 and not (buffers.bytes[value] == 0 and last[value] == slot[k]):
                now += plain[value]
                touched_at[value], written_by[value] = now, head
                seen[value] = head
            else:
                seen[value] = head
    outlive = before(program.ops.shape[0])
    for buffer in range(count):
        if written_by[buffer] >= 0 and last[buffer] >= outlive:
            hbm[written_by[buffer]] += plain[buffer]
    for k in range(nodes):
        if graph.nodes.kind[k] == KERNEL and leader[k] == k:
            seconds[k] = roofline_s(work[k], dtype[k], is_conv[k], vector[k], hbm[k], largest[k], row)
    return seconds, hbm
