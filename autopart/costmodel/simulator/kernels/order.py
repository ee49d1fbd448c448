"""Neighbouring matmuls in the order that needs less memory, as the compiler's scheduler would have them.

    %dw = dot %dy, %x         524 MB that stay             %dx first: its gathered %w is gone before %dw is made
    %wg = all_gather %w       524 MB that go again
    %dx = dot %dy, %wg         50 MB

A compiler that hides the latency of collectives orders for that instead: for its devices nothing is reordered. Only
neighbours that do not depend on each other change places, each with the redistributions that belong to it.
"""

# pyright: reportReturnType=false
# (an element of an array is a plain float in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.kernels.kernel_graph import DEF_MOVE, KERNEL, USE_MOVE, KernelGraph
from autopart.costmodel.simulator.slots import before, op_of

WORTH_BYTES = 2.0**20
"""Neighbours change places to save at least this much."""


@kernel
def order_neighbours(
    program: ProgramArrays, graph: KernelGraph, size: np.ndarray, last: np.ndarray, slot: np.ndarray
) -> None:
    """Changes `slot` of neighbouring matmuls and convolutions that need less memory the other way round."""
    k, nodes = 0, graph.nodes.shape[0]
    while k < nodes:
        first, middle = k, _unit_end(program, graph, k)
        if middle < 0:
            k += 1
            continue
        end = _unit_end(program, graph, middle)
        free = end > 0 and graph.nodes.scope[first] == graph.nodes.scope[middle]
        if free and not _depends(graph, first, middle, end):
            as_is, swapped = _peaks(graph, size, last, first, middle, end)
            if swapped < as_is - WORTH_BYTES:
                a, b = before(op_of(slot[first])), before(op_of(slot[middle]))
                for node in range(first, middle):
                    slot[node] += b - a
                for node in range(middle, end):
                    slot[node] -= b - a
                middle = end
        k = middle


@kernel
def _unit_end(program: ProgramArrays, graph: KernelGraph, k: int) -> int:
    """Where the unit that begins at node k ends: redistributions, a matmul, redistributions of its result; else -1."""
    start, nodes = k, graph.nodes.shape[0]
    while k < nodes and graph.nodes.kind[k] == USE_MOVE:
        k += 1
    if k == nodes or graph.nodes.kind[k] != KERNEL or program.ops.matrix_flop[graph.nodes.subject[k]] <= 0:
        return -1
    op = op_of(graph.nodes.slot[k])
    if k > start and op_of(graph.nodes.slot[start]) != op:
        return -1
    k += 1
    while k < nodes and graph.nodes.kind[k] == DEF_MOVE and op_of(graph.nodes.slot[k]) == op:
        k += 1
    return k


@kernel
def _depends(graph: KernelGraph, first: int, middle: int, end: int) -> bool:
    """True if a node of the second unit reads what one of the first writes."""
    for k in range(first, middle):
        for w in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            for i in range(graph.read_ptr[middle], graph.read_ptr[end]):
                if graph.reads.read_buffer[i] == graph.write_buffer[w]:
                    return True
    return False


@kernel
def _peaks(
    graph: KernelGraph, size: np.ndarray, last: np.ndarray, first: int, middle: int, end: int
) -> tuple[float, float]:
    """Most bytes above the start while both units run: (first one first, second one first)."""
    high_a, net_a = _bytes(graph, size, last, first, middle, graph.nodes.slot[end - 1])
    high_b, net_b = _bytes(graph, size, last, middle, end, graph.nodes.slot[end - 1])
    return max(high_a, net_a + high_b), max(high_b, net_b + high_a)


@kernel
def _bytes(
    graph: KernelGraph, size: np.ndarray, last: np.ndarray, start: int, end: int, pair_end: int
) -> tuple[float, float]:
    """(most, remaining) bytes of a unit: what it writes, and of that what is still read after the pair.

    A buffer that both units read, and no later node, is freed by the unit that comes second, so it counts for neither.
    """
    most = stays = 0.0
    for k in range(start, end):
        for w in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            buffer = graph.write_buffer[w]
            most += size[buffer]
            if last[buffer] > pair_end or last[buffer] < 0:
                stays += size[buffer]
    return most, stays
