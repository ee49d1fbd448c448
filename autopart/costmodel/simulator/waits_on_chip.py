"""What waits on the chip for a late reader: all that a small step keeps for its backward pass.

    %a = dot ...       16.8 MB on the chip
    ...                1.4 ms, in which four times what the chip holds is touched
    %b = dot %a ...    it is still there, and was never in HBM

Where the compiler says what lies on the chip, and all that lives between arguments and outputs takes at most two
thirds of it, a buffer stays from its kernel to its last reader if there is room all the while, in the order in which
they are made, and no reader comes too late: what waits between two readers longer than ten times what it takes to fill
the chip goes to HBM, whatever its size. Found with libtpu 0.0.51 on v5e: of 0.25 to 48 MiB beside products that take
1,455 us all stay, beside 1,733 us none; of buffers of 16 MiB six wait, of seven and eight the first go to HBM, and one
of 100 MiB does. Operands and results of collectives stay as those of kernels do, 48 MiB each, with products between or
without.

A larger step leaves things on the chip, too, as long as that, but what passes it meanwhile then has no room there:
without the second condition a ConvNeXt in bf16 was at 0.60 of the compiler's memory, a ViT at 0.70. Between two thirds
and the whole of the chip it depends on the program: UNets of 90 to 120 MB wait (taken to wait they are at 0.73 to 0.91
of the compiler's memory, else at 1.7 to 2.7), an Evoformer of 92 MB does not (0.17, and 1.00). All pass HBM here.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.hardware.devices import FED, HBM, ON_CHIP
from autopart.costmodel.simulator.arrays import F32_BYTES, LocalArrays, ProgramArrays, Records
from autopart.costmodel.simulator.held_loops import CARRIED_SHARE
from autopart.costmodel.simulator.kernel_graph import KERNEL, KernelGraph
from autopart.costmodel.simulator.liveness import Buffers
from autopart.costmodel.simulator.memory import changes
from autopart.costmodel.simulator.op_classes import ELEMENTWISE, REDUCE
from autopart.costmodel.simulator.roofline import roofline_s
from autopart.costmodel.simulator.slots import before

SMALL = 2 / 3
"""The most that may live between arguments and outputs of a step that keeps what waits on the chip, in chips."""

FILLS = 10.0
"""The longest wait between two readers, in times that it takes to fill the chip from HBM."""


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
    leaves: np.ndarray,
    cache: Records,
) -> None:
    """Fills in cache.stays[buffer]. `leaves` is scratch, per slot.

    cache   `touched_at` is scratch, -inf before and after; `wait_s`: the longest wait between two that touch a buffer
    """
    fits = _most_held(buffers, leaves) <= SMALL * row[ON_CHIP]
    for at in range(leaves.shape[0]):
        leaves[at] = 0.0
    if not fits:
        return
    _longest_waits(program, local, graph, order, row, times, cache)
    outlive, room, passed = before(program.ops.shape[0]), CARRIED_SHARE * row[ON_CHIP], 0
    limit_s = FILLS * row[ON_CHIP] / row[HBM]
    for k in order:
        while passed <= slot[k]:
            room += leaves[passed]
            passed += 1
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            buffer = graph.write_buffer[i]
            size, end = buffers.bytes[buffer], buffers.end[buffer]
            inside = local.home[buffer] == graph.nodes.scope[k] and buffers.last[buffer] < outlive
            if inside and size > 0 and end > slot[k] and size <= room and cache.wait_s[buffer] <= limit_s:
                cache.stays[buffer] = True
                room -= size
                leaves[end + 1] += size


@kernel
def _most_held(buffers: Buffers, change: np.ndarray) -> float:
    """The most bytes that buffers hold at any slot; `change` is scratch."""
    changes(buffers, change)
    lives = most = 0.0
    for at in range(change.shape[0]):
        lives += change[at]
        most = max(most, lives)
    return most


@kernel
def _longest_waits(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    row: np.ndarray,
    times: np.ndarray,
    cache: Records,
) -> None:
    """Fills in cache.wait_s of buffers that nodes write, by a clock at which all nodes read and write HBM."""
    clock_s = 0.0
    for k in order:
        passing = graph.nodes.written[k]
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            turns = program.scopes.scope_trips[local.home[buffer]]
            if cache.touched_at[buffer] > -np.inf:
                cache.wait_s[buffer] = max(cache.wait_s[buffer], (clock_s - cache.touched_at[buffer]) / turns)
                cache.touched_at[buffer] = clock_s
            passing += graph.reads.read_bytes[i]
        runs = times[k] * program.scopes.scope_trips[graph.nodes.scope[k]]
        if graph.nodes.kind[k] == KERNEL:
            if row[FED] > 0:
                passing += _fed_bytes(program, local, graph, k)
            clock_s += runs * roofline_s(
                graph.nodes.matrix_work[k], graph.nodes.matrix_dtype[k], graph.nodes.is_conv[k],
                graph.nodes.vector_flop[k], passing, 0.0, row,
            )  # fmt: skip
        else:
            clock_s += runs * passing / row[HBM]
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            cache.touched_at[graph.write_buffer[i]] = clock_s
    for k in order:
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            cache.touched_at[graph.write_buffer[i]] = -np.inf


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
