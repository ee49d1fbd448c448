"""Small reductions that the compiler runs as one: XLA's all-reduce combiner.

    %g1 = all_reduce ...     4 MB  \\
    %g2 = all_reduce ...     9 MB   } one all_reduce of 16 MB, when the last of them is ready: all three live until then
    %g3 = all_reduce ...     3 MB  /

Reductions of one kind over the same axes are combined in program order while they stay below `combine_bytes` and none
of their results is needed before the last is ready. A combined reduction pays its latency once. Of a layer that
stands for others (`left_out.py`), what joins a batch that is open before and after it counts as often as they would.

Gathers of arrays of one dim, which the compiler makes all_reduces of the whole, are combined as these: after an update
under ZeRO a step gathers each bias and each norm's scale, 89 of them in a UNet.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays
from autopart.costmodel.simulator.kernels.kernel_graph import DEF_MOVE, KERNEL, KernelGraph
from autopart.costmodel.simulator.kernels.left_out import LeftOut
from autopart.costmodel.simulator.links.redistribution_costs import BYTES_IN, COMBINABLE, LATENCY_S
from autopart.costmodel.simulator.slots import NEVER, before, slots_between

MAX_COMBINED = 256
"""Operands of one combined collective, XLA's limit."""

SOON_OPS = 100
"""A reduction whose result is read this soon after is left alone."""


class Batches(NamedTuple):
    """What waits together, by kind of reduction, by node and by buffer: scratch of `combine_reductions`.

    needed[buffer]           the first slot at which a redistributed result is read
    held, joined, deadline, open_batch, scope   of the batch of a kind that nodes may still join: its bytes, how many
                             joined, the first slot at which a result is needed, its number (-1: none), its scope
    stand_bytes, stand_joined   of a batch that has begun before the layer that stands for others, what joined there
    begun_there              1 where it has begun there
    batch_of[node]           the batch that it joined, or -1; ends[batch]: the slot of its last node
    """

    needed: np.ndarray
    held: np.ndarray
    joined: np.ndarray
    deadline: np.ndarray
    open_batch: np.ndarray
    scope: np.ndarray
    stand_bytes: np.ndarray
    stand_joined: np.ndarray
    begun_there: np.ndarray
    batch_of: np.ndarray
    ends: np.ndarray


@kernel
def kind_of(graph: KernelGraph, figures: np.ndarray, plan_row: int, k: int) -> int:
    """Equal for nodes that may be combined, negative for all others."""
    return int(figures[COMBINABLE, plan_row]) - 1 if graph.nodes.kind[k] != KERNEL else -1


@kernel
def combine_reductions(
    local: LocalArrays,
    graph: KernelGraph,
    plan_rows: np.ndarray,
    figures: np.ndarray,
    combine_bytes: float,
    place: np.ndarray,
    left_out: LeftOut,
    def_values: np.ndarray,
    batches: Batches,
    slot: np.ndarray,
    saved_s: np.ndarray,
) -> None:
    """Changes `slot`, where reductions wait for each other; fills in the seconds that each saves by sharing a latency.

    Nodes are taken in program order. plan_rows[k]: the row of node k's plan in `figures` (`KnownPlans`); def_values[d]:
    the value of place d; `place` as in `ProgramArrays`.
    """
    needed, held, joined, deadline = batches.needed, batches.held, batches.joined, batches.deadline
    open_batch, scope, batch_of, ends = batches.open_batch, batches.scope, batches.batch_of, batches.ends
    stand_bytes, stand_joined, begun_there = batches.stand_bytes, batches.stand_joined, batches.begun_there
    nodes, made = graph.nodes.shape[0], 0
    for g in range(open_batch.shape[0]):
        open_batch[g] = -1
    for k in range(nodes):
        saved_s[k], batch_of[k] = 0.0, -1
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            needed[buffer] = min(needed[buffer], slot[k])
        if graph.nodes.kind[k] != KERNEL:
            needed[graph.write_buffer[graph.write_ptr[k]]] = NEVER
    for k in range(nodes):
        g, wanted_at = kind_of(graph, figures, plan_rows[k], k), NEVER
        operand_bytes, latency_s = figures[BYTES_IN, plan_rows[k]], figures[LATENCY_S, plan_rows[k]]
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            wanted_at = min(wanted_at, needed[graph.write_buffer[i]])
        if g < 0 or (wanted_at < NEVER and slots_between(place, slot[k], wanted_at) < before(SOON_OPS)):
            continue
        subject = graph.nodes.subject[k]
        value = def_values[subject] if graph.nodes.kind[k] == DEF_MOVE else local.moves.moved_value[subject]
        stands = left_out.layers > 0 and left_out.one_before[value] >= 0
        if open_batch[g] >= 0 and not stands:
            held[g] += left_out.layers * stand_bytes[g]
            joined[g] += left_out.layers * stand_joined[g]
            stand_bytes[g], stand_joined[g] = 0.0, 0
        fits = held[g] + operand_bytes <= combine_bytes and joined[g] < MAX_COMBINED
        if open_batch[g] < 0 or not fits or slot[k] >= deadline[g] or scope[g] != graph.nodes.scope[k]:
            open_batch[g], made = made, made + 1
            held[g], joined[g], deadline[g] = 0.0, 0, NEVER
            stand_bytes[g], stand_joined[g], begun_there[g] = 0.0, 0, stands
            scope[g] = graph.nodes.scope[k]
        else:
            saved_s[k] = latency_s
        held[g] += operand_bytes
        joined[g] += 1
        if stands and not begun_there[g]:
            stand_bytes[g] += operand_bytes
            stand_joined[g] += 1
        deadline[g] = min(deadline[g], wanted_at)
        batch_of[k] = open_batch[g]
        ends[batch_of[k]] = slot[k]
    for k in range(nodes):
        if batch_of[k] >= 0:
            slot[k] = ends[batch_of[k]]
