"""Small reductions that the compiler runs as one: XLA's all-reduce combiner.

    %g1 = all_reduce ...     4 MB  \\
    %g2 = all_reduce ...     9 MB   } one all_reduce of 16 MB, when the last of them is ready: all three live until then
    %g3 = all_reduce ...     3 MB  /

Reductions of one kind over the same axes are combined in program order while they stay below `combine_bytes` and none
of their results is needed before the last is ready. A combined reduction pays its latency once.
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import allocating_kernel
from autopart.costmodel.simulator.arrays import LocalArrays
from autopart.costmodel.simulator.kernel_graph import KernelGraph
from autopart.costmodel.simulator.slots import before

MAX_COMBINED = 256
"""Operands of one combined collective, XLA's limit."""

SOON_OPS = 100
"""A reduction whose result is read this soon after is left alone."""


@allocating_kernel
def combine_reductions(
    local: LocalArrays,
    graph: KernelGraph,
    ordered: np.ndarray,
    group: np.ndarray,
    operand_bytes: np.ndarray,
    latency_s: np.ndarray,
    combine_bytes: float,
) -> tuple[np.ndarray, np.ndarray]:
    """(slots of nodes once reductions wait for each other, seconds each saves by sharing a latency).

    ordered   slots before; nodes are taken in program order
    group[k]  equal for nodes that may be combined, negative for all others
    """
    slot, nodes = ordered.copy(), graph.nodes.shape[0]
    saved_s = np.zeros(nodes)
    if nodes == 0 or group.max() < 0:
        return slot, saved_s
    needed = np.full(local.home.shape[0], np.iinfo(np.int64).max)
    for k in range(nodes):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            needed[graph.reads.read_buffer[i]] = min(needed[graph.reads.read_buffer[i]], ordered[k])
    kinds = group.max() + 1
    held, count, deadline = np.zeros(kinds), np.zeros(kinds, np.int64), np.zeros(kinds, np.int64)
    batch_of, batches = np.full(nodes, -1, np.int64), 0
    open_batch, scope = np.full(kinds, -1, np.int64), np.full(kinds, -1, np.int64)
    ends = np.zeros(nodes, np.int64)
    for k in range(nodes):
        g, wanted_at = group[k], np.iinfo(np.int64).max
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            wanted_at = min(wanted_at, needed[graph.write_buffer[i]])
        if g < 0 or wanted_at - slot[k] < before(SOON_OPS):
            continue
        fits = held[g] + operand_bytes[k] <= combine_bytes and count[g] < MAX_COMBINED
        if open_batch[g] < 0 or not fits or slot[k] >= deadline[g] or scope[g] != graph.nodes.scope[k]:
            open_batch[g], batches = batches, batches + 1
            held[g], count[g], deadline[g] = 0.0, 0, np.iinfo(np.int64).max
            scope[g] = graph.nodes.scope[k]
        else:
            saved_s[k] = latency_s[k]
        held[g] += operand_bytes[k]
        count[g] += 1
        deadline[g] = min(deadline[g], wanted_at)
        batch_of[k] = open_batch[g]
        ends[batch_of[k]] = slot[k]
    for k in range(nodes):
        if batch_of[k] >= 0:
            slot[k] = ends[batch_of[k]]
    return slot, saved_s
