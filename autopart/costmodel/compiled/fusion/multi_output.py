"""Kernels that run as one, with several results: XLA's multi-output fusion.

    %g = dot %x %d            one kernel: %g is never written, %m, %v and %w are updated as it is made
    %m' = add %m %g
    %v' = add %v (%g * %g)

An elementwise op or a reduction joins the kernel that makes what it reads in step, or one that reads the same array in
step, if everything else it reads could be there when that kernel runs. Exponentials of scores need the largest of each
row, which the scores' kernel knows too (`softmax_rows.py`). In a loop an update joins the kernel that makes what it
writes: what a turn leaves for the backward pass, and reads itself, is written by one kernel.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import F32_BYTES, LocalArrays, ProgramArrays
from autopart.costmodel.compiled.facts.cut_arrays import BY_PARTS
from autopart.costmodel.compiled.facts.op_classes import CONV, ELEMENTWISE, MATMUL, REDUCE, UPDATE
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, LAID, RESHAPED, STREAMED, KernelGraph
from autopart.costmodel.compiled.slots import UNKNOWN, before

MAX_RESULTS = 16
"""Most kernels that join one."""


MOST_SUMMED = 12 * 2.0**20
"""A reduction that leaves more bytes in f32 joins no kernel of a TPU: one of 8 MiB does, one of 16 does not."""

JOIN_WINDOW_OPS = 100
"""How far behind a kernel an op may be to join it: about one block of a transformer."""


@kernel
def join_kernels(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    order: np.ndarray,
    slot: np.ndarray,
    made: np.ndarray,
    possible: np.ndarray,
    depth: np.ndarray,
    with_matmul: bool,
    leader: np.ndarray,
    joined: np.ndarray,
    maker: np.ndarray,
    reader: np.ndarray,
) -> None:
    """Fills in leader[k], the node that node k runs in, itself where it joins none; moves joined nodes.

    order        nodes by slot
    slot, made   when nodes run and buffers are made, before and after
    possible     when buffers could have been made (`liveness.run_early`), before and after
    depth        of buffers (the same): one that is no deeper than another is not made of it
    with_matmul  whether ops join a matmul or convolution (TPU; not cuBLAS)

    Scratch: joined[k], how many nodes run in node k; maker[buffer], the node whose kernel makes it, `_closed` if no
    others may join that; reader[buffer], the last that read it in step; -1 if none.
    """
    for k in range(leader.shape[0]):
        leader[k], joined[k] = k, 0
    for buffer in range(made.shape[0]):
        maker[buffer] = reader[buffer] = -1
    for k in order:
        if graph.nodes.kind[k] != KERNEL:
            _could_be_moved(graph, k, possible)
            continue
        op = graph.nodes.subject[k]
        kind, in_step = program.ops.op_class[op], local.ops.in_step[op]
        writes = kind == UPDATE and graph.nodes.scope[k] > 0
        apart = False
        if kind == REDUCE and with_matmul:
            apart = F32_BYTES * local.values.native_elements[program.result_ptr[op]] > MOST_SUMMED
        if writes or (in_step > 1 and kind in (ELEMENTWISE, REDUCE) and not apart):
            whole_rows = program.values.exponential[program.result_ptr[op]]
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                how, buffer = graph.reads.read_how[i], graph.reads.read_buffer[i]
                if not (writes or how & (STREAMED | LAID)) or how & RESHAPED:
                    continue
                for other in (maker[buffer], reader[buffer]):
                    if writes and other != maker[buffer]:
                        continue
                    if not writes and not _walks_alike(local, graph, other, in_step, how):
                        continue
                    if other < 0 or joined[other] >= MAX_RESULTS or graph.nodes.scope[other] != graph.nodes.scope[k]:
                        continue
                    if slot[k] - slot[other] <= before(JOIN_WINDOW_OPS) and _ready(
                        graph, made, possible, depth, maker, k, other, slot[other], whole_rows, writes, kind == REDUCE
                    ):
                        leader[k] = other
                        break
                if leader[k] != k:
                    break
        head = leader[k]
        if head != k:
            joined[head] += 1
            slot[k] = slot[head]
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                made[graph.write_buffer[i]] = possible[graph.write_buffer[i]] = slot[k]
        matrix = kind in (MATMUL, CONV)
        by_parts = program.values.laid[program.result_ptr[op]] == BY_PARTS
        open_to_others = (kind == ELEMENTWISE and not by_parts) or (matrix and with_matmul)
        for value in range(program.result_ptr[op], program.result_ptr[op + 1]):
            if local.values.at_def[value] < 0:
                maker[value] = head if open_to_others else _closed(head)
        if in_step > 1:
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                if graph.reads.read_how[i] & (STREAMED | LAID) and not graph.reads.read_how[i] & RESHAPED:
                    reader[graph.reads.read_buffer[i]] = head


@kernel
def _closed(node: int) -> int:
    """How `maker` notes a node that no others may join, and which node that is."""
    return -2 - node


@kernel
def _walks_alike(local: LocalArrays, graph: KernelGraph, other: int, in_step: float, how: int) -> bool:
    """True if node `other` walks through as many elements as what reads an array so; a product does, unless that is a
    part of what is walked through."""
    walked = local.ops.in_step[graph.nodes.subject[other]] if other >= 0 else 0.0
    return walked == in_step or (walked <= 1 and not how & LAID)


@kernel
def _could_be_moved(graph: KernelGraph, k: int, possible: np.ndarray) -> None:
    """A redistribution could be made when what it moves could be."""
    ready = 0
    for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
        ready = max(ready, possible[graph.reads.read_buffer[i]])
    for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
        possible[graph.write_buffer[i]] = min(possible[graph.write_buffer[i]], ready)


@kernel
def _ready(
    graph: KernelGraph,
    made: np.ndarray,
    possible: np.ndarray,
    depth: np.ndarray,
    maker: np.ndarray,
    k: int,
    other: int,
    at: int,
    whole_rows: bool,
    writes: bool,
    sums: bool,
) -> bool:
    """True if node k can run with node `other` at its slot: it reads that node's results in step, the rest is there
    already, be it made just before, or could be since it could be made sooner than these, or, for a sum, is no
    deeper, or, if kernels have whole rows for k, is reduced in that node."""
    left = graph.write_buffer[graph.write_ptr[other]]
    for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
        buffer = graph.reads.read_buffer[i]
        if maker[buffer] == other:
            if not (writes or graph.reads.read_how[i] & STREAMED):
                return False
        elif made[buffer] > at:
            no_deeper = sums and depth[buffer] <= depth[left] < UNKNOWN
            if possible[buffer] >= possible[left] and not no_deeper:
                return False
        elif made[buffer] == at and not whole_rows:
            by = maker[buffer] if maker[buffer] >= -1 else _closed(maker[buffer])
            if by < 0 or by >= other:
                return False
    return True
