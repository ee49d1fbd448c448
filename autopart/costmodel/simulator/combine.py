"""Small reductions that the compiler runs as one: XLA's all-reduce combiner.

    %g1 = all_reduce ...     4 MB  \\
    %g2 = all_reduce ...     9 MB   } one all_reduce of 16 MB, when the last of them is ready: all three live until then
    %g3 = all_reduce ...     3 MB  /

Reductions of one kind over the same axes are combined in program order while they stay below `combine_bytes` and none
of their results is needed before the last is ready. A combined reduction pays its latency once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays
from autopart.costmodel.simulator.kernel_graph import KernelGraph
from autopart.costmodel.simulator.slots import before

MAX_COMBINED = 256
"""Operands of one combined collective, XLA's limit."""

NEVER = 2**63 - 1
"""Behind the last slot of any program."""

SOON_OPS = 100
"""A reduction whose result is read this soon after is left alone."""


class _Batches(NamedTuple):
    """What waits together, by kind of reduction, by node and by buffer.

    needed[buffer]           the first slot at which it is read
    held, joined, deadline, open_batch, scope   of the batch of a kind that nodes may still join: its bytes, how many
                             joined, the first slot at which a result is needed, its number (-1: none), its scope
    batch_of[node]           the batch that it joined, or -1; ends[batch]: the slot of its last node
    """

    needed: np.ndarray
    held: np.ndarray
    joined: np.ndarray
    deadline: np.ndarray
    open_batch: np.ndarray
    scope: np.ndarray
    batch_of: np.ndarray
    ends: np.ndarray


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
    slot, nodes = ordered.copy(), len(graph.nodes)
    saved_s, kinds = np.zeros(nodes), int(group.max(initial=-1)) + 1
    if kinds > 0:
        batches = _Batches(
            np.full(len(local.home), NEVER), np.zeros(kinds), np.zeros(kinds, np.int64), np.zeros(kinds, np.int64),
            np.full(kinds, -1, np.int64), np.full(kinds, -1, np.int64), np.full(nodes, -1, np.int64),
            np.zeros(nodes, np.int64),
        )  # fmt: skip
        _combine(graph, group, operand_bytes, latency_s, combine_bytes, batches, slot, saved_s)
    return slot, saved_s


@kernel
def _combine(
    graph: KernelGraph,
    group: np.ndarray,
    operand_bytes: np.ndarray,
    latency_s: np.ndarray,
    combine_bytes: float,
    batches: _Batches,
    slot: np.ndarray,
    saved_s: np.ndarray,
) -> None:
    """Changes `slot`, in which nodes are ordered as they are at first, and fills in `saved_s`."""
    needed, held, joined, deadline = batches.needed, batches.held, batches.joined, batches.deadline
    open_batch, scope, batch_of, ends = batches.open_batch, batches.scope, batches.batch_of, batches.ends
    nodes, made = graph.nodes.shape[0], 0
    for k in range(nodes):
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            needed[graph.reads.read_buffer[i]] = min(needed[graph.reads.read_buffer[i]], slot[k])
    for k in range(nodes):
        g, wanted_at = group[k], NEVER
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            wanted_at = min(wanted_at, needed[graph.write_buffer[i]])
        if g < 0 or wanted_at - slot[k] < before(SOON_OPS):
            continue
        fits = held[g] + operand_bytes[k] <= combine_bytes and joined[g] < MAX_COMBINED
        if open_batch[g] < 0 or not fits or slot[k] >= deadline[g] or scope[g] != graph.nodes.scope[k]:
            open_batch[g], made = made, made + 1
            held[g], joined[g], deadline[g] = 0.0, 0, NEVER
            scope[g] = graph.nodes.scope[k]
        else:
            saved_s[k] = latency_s[k]
        held[g] += operand_bytes[k]
        joined[g] += 1
        deadline[g] = min(deadline[g], wanted_at)
        batch_of[k] = open_batch[g]
        ends[batch_of[k]] = slot[k]
    for k in range(nodes):
        if batch_of[k] >= 0:
            slot[k] = ends[batch_of[k]]
