"""Collectives beside compute: when each node of a step starts, by slots, on two streams.

    loop     %w = all-gather %shard     waits for nothing that the loop changes
             %y = dot %x, %w
             %g = reduce-scatter %dy    read by an update of what the loop carries, and by nothing else

A collective starts when links are free and its operands are there, and those of all that run with it. In XLA:GPU's
texts none starts before the loop that it is in, a trip waits for what it has sent, and so does what follows a loop.
Under `xla_gpu_enable_pipelined_*` (`collective_pipeliner.cc`), and in PyTorch's FSDP, what reads `%g` moves to the next
trip, and `%w` is fetched a trip ahead. Either then *flows*: all its trips are one stretch, which starts once the first
trip's operand is there, and ends a trip after the last one's. Other nodes of a loop stand for all their trips, one
after the other.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.op_classes import UPDATE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, KernelGraph


def two_streams(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, slot: np.ndarray, leader: np.ndarray,
    seconds: np.ndarray, trips: np.ndarray, pipelined: bool,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """(float64[nodes]: when each starts, when the last ends) of nodes that take `seconds` in all their `trips`.

    `pipelined` says whether loops fetch a trip ahead what they do not change, and reduce beside the next trip.
    """
    nodes, buffers = len(graph.nodes), len(local.home)
    start_s, flows = np.zeros(nodes), np.zeros(nodes, np.bool_)
    marked, ready = np.zeros((2, buffers), np.bool_), np.zeros((3, buffers))
    order = np.argsort(slot, kind="stable")
    end_s = _two_streams(
        program, local, graph, order, slot, leader, seconds, trips, pipelined, marked, flows, ready, start_s
    )
    return start_s, float(end_s)


FIRST, IN_TURN, LAST = range(3)
"""When a buffer is there: of the first trip, for nodes that flow; for others of the loop; and of the last trip."""


@kernel
def _two_streams(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    leader: np.ndarray,
    seconds: np.ndarray,
    trips: np.ndarray,
    pipelined: bool,
    marked: np.ndarray,
    flows: np.ndarray,
    ready: np.ndarray,
    start: np.ndarray,
) -> float:
    """Fills in `start`; returns when the last node ends."""
    _what_flows(program, local, graph, pipelined, marked, flows)
    kernels = links = began = tail = 0.0
    loop = 0
    batch, together = -1, 0.0
    for p in range(order.shape[0]):
        k = order[p]
        is_kernel, within = graph.nodes.kind[k] == KERNEL, _outermost(program, graph.nodes.scope[k])
        if within != loop:
            kernels = max(kernels, tail, 0.0 if pipelined or loop == 0 else links)
            loop, began = within, kernels
        at, once = kernels if is_kernel else links, seconds[k] / max(trips[k], 1.0)
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            at = max(at, ready[FIRST if flows[k] else IN_TURN, buffer])
            tail = max(tail, ready[LAST, buffer] + once)
        if not is_kernel and not flows[k]:
            if batch != slot[k]:
                batch, together = slot[k], _all_there(graph, order, slot, p, ready)
            at = max(at, together, began)
        done = at + seconds[k]
        if flows[k]:
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                done = max(done, ready[LAST, graph.reads.read_buffer[i]] + once)
        start[k] = done - seconds[k]
        if leader[k] == k:
            kernels, links = (done, links) if is_kernel else (kernels, done)
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            buffer = graph.write_buffer[i]
            ready[FIRST, buffer] = at + once if flows[k] else began + (done - began) / max(trips[k], 1.0)
            ready[IN_TURN, buffer] = at + once if flows[k] else done
            ready[LAST, buffer] = done
    return max(kernels, links, tail)


@kernel
def _all_there(graph: KernelGraph, order: np.ndarray, slot: np.ndarray, p: int, ready: np.ndarray) -> float:
    """When the operands of all collectives are there that run together from place p of `order` on."""
    at, first = 0.0, slot[order[p]]
    while p < order.shape[0] and slot[order[p]] == first and graph.nodes.kind[order[p]] != KERNEL:
        for i in range(graph.read_ptr[order[p]], graph.read_ptr[order[p] + 1]):
            at = max(at, ready[IN_TURN, graph.reads.read_buffer[i]])
        p += 1
    return at


@kernel
def _outermost(program: ProgramArrays, scope: int) -> int:
    """The outermost loop or branch around a scope."""
    while program.scopes.scope_parent[scope] > 0:
        scope = program.scopes.scope_parent[scope]
    return scope


@kernel
def _what_flows(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    pipelined: bool,
    marked: np.ndarray,
    flows: np.ndarray,
) -> None:
    """Fills in `flows`. Scratch: marked[0][buffer], a node reads it that is no update, or whose results are read;
    marked[1][buffer], a node reads it, in this trip or the next; then, it depends on arrays that the loop changes."""
    waited, changed = marked[0], marked[1]
    goes_on = True
    while goes_on:
        for k in range(graph.nodes.shape[0] - 1, -1, -1):
            is_waited_for = graph.nodes.kind[k] == KERNEL and program.ops.op_class[graph.nodes.subject[k]] != UPDATE
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                is_waited_for = is_waited_for or changed[graph.write_buffer[i]]
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                changed[graph.reads.read_buffer[i]] = True
                waited[graph.reads.read_buffer[i]] = waited[graph.reads.read_buffer[i]] or is_waited_for
        goes_on = False
        for i in range(program.carries.shape[0]):
            op = program.carries[i]
            following = local.uses.use_buffer[program.operand_ptr[op + 1] - 1]
            if waited[program.result_ptr[op]] and not waited[following]:
                waited[following] = changed[following] = goes_on = True
    for buffer in range(changed.shape[0]):
        changed[buffer] = False
    for i in range(program.carries.shape[0]):
        for value in range(program.result_ptr[program.carries[i]], program.result_ptr[program.carries[i] + 1]):
            changed[value] = program.values.elements[value] > 1
    for k in range(graph.nodes.shape[0]):
        depends = is_waited_for = False
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            depends = depends or changed[graph.reads.read_buffer[i]]
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            changed[graph.write_buffer[i]] = changed[graph.write_buffer[i]] or depends
            is_waited_for = is_waited_for or waited[graph.write_buffer[i]]
        in_loop = graph.nodes.kind[k] != KERNEL and graph.nodes.scope[k] != 0
        flows[k] = in_loop and pipelined and (not is_waited_for or not depends)
