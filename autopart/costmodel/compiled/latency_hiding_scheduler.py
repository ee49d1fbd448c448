"""In which order XLA:GPU runs kernels: products as late as they are read, those of weight gradients behind all others.

    %dx2 = dot %dy2 %w2        the way back to the first layer
    %dx1 = dot %dy1 %w1
    %dw2 = dot %dy2 %x2        then the gradients, each beside the reduction of the one before: what they are computed
    %dw1 = dot %dy1 %x1        from lives until then

In a loop they come behind the way back to the layer before, and what they add to is carried.

The scheduler (`latency_hiding_scheduler.cc`) goes from the end of a program to its beginning. A reduction whose result
the end asks for is in flight as soon as it is met there, and products that nothing but reductions waits for are ready
to hide it. So it is in 11 programs compiled for an H100 under data parallelism and FSDP, but for two in which some of
the gradients come before the last product. Programs without reductions keep their order. Linear in the program.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import LocalArrays, ProgramArrays, Records
from autopart.costmodel.compiled.buffer_assignment.liveness import Buffers
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL, KernelGraph
from autopart.costmodel.compiled.slots import NEVER, SLOTS_PER_OP, before, early, op_of


@kernel
def gradients_last(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    made: np.ndarray,
    needed: np.ndarray,
    reduced: np.ndarray,
    behind: np.ndarray,
    planned: np.ndarray,
) -> None:
    """Changes `planned`, the slots of nodes.

    Scratch: made[buffer], the slot at which it is there; needed[buffer], some product waits for it, reduced[buffer],
    some collective does, or the next turn of a loop; behind[scope], the op behind which its gradients run.
    """
    _what_waits(program, local, graph, needed, reduced, behind)
    for buffer in range(made.shape[0]):
        made[buffer] = 0
    for k in range(graph.nodes.shape[0]):
        scope = graph.nodes.scope[k]
        if is_product(program, graph, k) and op_of(planned[k]) < behind[scope] and _is_leaf(graph, needed, reduced, k):
            behind[scope] = min(behind[scope] + 1, program.scopes.scope_end[scope] - 1)
            planned[k] = early(int(behind[scope]) * 4)
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            planned[k] = max(planned[k], made[graph.reads.read_buffer[i]])
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            made[graph.write_buffer[i]] = planned[k]


@kernel
def as_late_as_read(
    program: ProgramArrays, local: LocalArrays, graph: KernelGraph, first: np.ndarray, planned: np.ndarray
) -> None:
    """Changes `planned`: a product, and what reads one array alone, runs right before it is first read, in its scope.

    What is wanted late the scheduler meets first, on its way to the beginning, and what it is made of lives until then.

    Scratch: first[buffer], the slot at which it is first read.
    """
    if not _sends(graph):
        return
    first[:] = NEVER
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            buffer, at = local.uses.use_buffer[use], before(program.uses.use_position[use])
            first[buffer] = min(first[buffer], _since(program, local, buffer, program.uses.use_scope[use], at))
    for k in range(graph.nodes.shape[0] - 1, -1, -1):
        reads_one = graph.read_ptr[k + 1] - graph.read_ptr[k] <= 1
        if graph.nodes.kind[k] == KERNEL and (reads_one or is_product(program, graph, k)):
            wanted = NEVER
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                wanted = min(wanted, first[graph.write_buffer[i]])
            if wanted < NEVER:
                end = before(program.scopes.scope_end[graph.nodes.scope[k]])
                planned[k] = max(planned[k], early(min(wanted, end) - SLOTS_PER_OP))
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            at = _since(program, local, buffer, int(graph.nodes.scope[k]), int(planned[k]))
            first[buffer] = min(first[buffer], at)


@kernel
def _sends(graph: KernelGraph) -> bool:
    """True if there is a collective."""
    for k in range(graph.nodes.shape[0]):  # noqa: SIM110
        if graph.nodes.kind[k] != KERNEL:
            return True
    return False


@kernel
def _since(program: ProgramArrays, local: LocalArrays, buffer: int, scope: int, at: int) -> int:
    """The slot `at` in a scope, or that at which the loop around it begins that a buffer is not made in."""
    home = local.home[buffer]
    while scope > 0 and scope != home and program.scopes.scope_twin[scope] != home:
        at, scope = min(at, before(program.scopes.scope_start[scope])), program.scopes.scope_parent[scope]
    return at


@kernel
def is_product(program: ProgramArrays, graph: KernelGraph, k: int) -> bool:
    """True for a node that is a matrix product or convolution."""
    return graph.nodes.kind[k] == KERNEL and program.ops.matrix_flop[graph.nodes.subject[k]] > 0


@kernel
def _what_waits(
    program: ProgramArrays,
    local: LocalArrays,
    graph: KernelGraph,
    needed: np.ndarray,
    reduced: np.ndarray,
    last: np.ndarray,
) -> None:
    """Fills in `needed` and `reduced`; last[scope], the op of the last product there that another waits for, or at
    which a loop with products ends."""
    last[:] = 0
    for buffer in range(needed.shape[0]):
        needed[buffer] = reduced[buffer] = False
    for i in range(program.structure.shape[0]):
        op = program.structure[i]
        for use in range(program.operand_ptr[op], program.operand_ptr[op + 1]):
            buffer = local.uses.use_buffer[use]
            if program.ops.carry_body[op] >= 0 and use > program.operand_ptr[op]:
                reduced[buffer] = True
            else:
                needed[buffer] = True
    _go_back(program, graph, needed, reduced, last)
    if program.carries.shape[0] > 0:
        for i in range(program.carries.shape[0]):
            op = program.carries[i]
            if needed[program.result_ptr[op]]:  # what the next turn computes products of
                needed[local.uses.use_buffer[program.operand_ptr[op] + 1]] = True
        _go_back(program, graph, needed, reduced, last)


@kernel
def _go_back(
    program: ProgramArrays, graph: KernelGraph, needed: np.ndarray, reduced: np.ndarray, last: np.ndarray
) -> None:
    """Goes on with `needed`, `reduced` and `last`, from the end of the program to its beginning."""
    for k in range(graph.nodes.shape[0] - 1, -1, -1):
        waits = joins = False
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            waits = waits or needed[graph.write_buffer[i]]
            joins = joins or reduced[graph.write_buffer[i]]
        product, scope = is_product(program, graph, k), graph.nodes.scope[k]
        if product and waits:
            last[scope] = max(last[scope], op_of(graph.nodes.slot[k]))
        while product and scope > 0:
            end, scope = program.scopes.scope_end[scope], program.scopes.scope_parent[scope]
            last[scope] = max(last[scope], end)
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            needed[buffer] = needed[buffer] or waits or product
            reduced[buffer] = reduced[buffer] or joins or graph.nodes.kind[k] != KERNEL


@kernel
def _is_leaf(graph: KernelGraph, needed: np.ndarray, reduced: np.ndarray, k: int) -> bool:
    """True if no product waits for a node's results, and a collective does."""
    waits = joins = False
    for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
        waits = waits or needed[graph.write_buffer[i]]
        joins = joins or reduced[graph.write_buffer[i]]
    return bool(joins and not waits)


@kernel
def sent_early(
    program: ProgramArrays,
    graph: KernelGraph,
    made: np.ndarray,
    wanted: np.ndarray,
    sent: np.ndarray,
    planned: np.ndarray,
) -> None:
    """Changes `planned` and `made`: what only collectives read, as parameters cast to bf16, is made when it can be.

    Scratch: wanted[buffer], a kernel that runs at its place reads it; sent[buffer], some collective does.
    """
    wanted[:] = sent[:] = False
    for k in range(graph.nodes.shape[0] - 1, -1, -1):
        waits = is_product(program, graph, k) or not _is_leaf(graph, wanted, sent, k)
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            if graph.nodes.kind[k] != KERNEL or not waits:
                sent[buffer] = True
            else:
                wanted[buffer] = True
    for k in range(graph.nodes.shape[0]):
        if graph.nodes.kind[k] == KERNEL and not is_product(program, graph, k) and _is_leaf(graph, wanted, sent, k):
            at = before(program.scopes.scope_start[graph.nodes.scope[k]]) if graph.nodes.scope[k] != 0 else 0
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                at = max(at, made[graph.reads.read_buffer[i]])
            planned[k] = min(planned[k], early(at))
            for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
                made[graph.write_buffer[i]] = planned[k]


@kernel
def in_flight(
    graph: KernelGraph, order: np.ndarray, slot: np.ndarray, timed: Records, link_s: np.ndarray, until_s: np.ndarray,
    buffers: Buffers,
) -> None:  # fmt: skip
    """Lets what a gather leaves, or a reduce_scatter reads, live while the collective runs beside kernels.

    A gather starts so many seconds of kernels before it is waited for, in its loop, once its operand is there and the
    collective before it has ended; a reduce_scatter is waited for so many seconds of kernels after it starts.

    Scratch: until_s[p], seconds of kernels before place p of `order`.
    """
    total, nodes = 0.0, order.shape[0]
    for p in range(nodes):
        until_s[p] = total
        if graph.nodes.kind[order[p]] == KERNEL:
            total += timed.seconds[order[p]]
    ended = 0
    for p in range(nodes):
        k = order[p]
        if graph.nodes.kind[k] == KERNEL or link_s[k] <= 0.0:
            continue
        source, result = graph.reads.read_buffer[graph.read_ptr[k]], graph.write_buffer[graph.write_ptr[k]]
        if buffers.bytes[result] > buffers.bytes[source]:
            q = p
            while (
                q > ended and until_s[q] > until_s[p] - link_s[k] and slot[order[q - 1]] > buffers.made[source]
                and graph.nodes.scope[order[q - 1]] == graph.nodes.scope[k]
            ):  # fmt: skip
                q -= 1
            buffers.made[result] = min(buffers.made[result], slot[order[q]])
        elif buffers.bytes[result] < buffers.bytes[source]:
            q = p
            while (
                q + 1 < nodes and until_s[q] < until_s[p] + link_s[k]
                and graph.nodes.scope[order[q + 1]] == graph.nodes.scope[k]
            ):  # fmt: skip
                q += 1
            buffers.end[source] = max(buffers.end[source], slot[order[q]])
        ended = p
