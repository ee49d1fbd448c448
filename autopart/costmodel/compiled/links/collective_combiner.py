"""Small reductions that the compiler runs as one: XLA's all-reduce combiner.

    %g1 = all_reduce ...     4 MB  \\
    %g2 = all_reduce ...     9 MB   } one all_reduce of 16 MB, when the last of them is ready: all three live until then
    %g3 = all_reduce ...     3 MB  /

Reductions of one kind over the same axes are combined in program order while they stay below `combine_bytes` and none
of their results is needed before the last is ready. A combined reduction pays its latency once. Of a layer that
stands for others (`left_out.py`), what joins a batch that is open before and after it counts as often as they would.

Gathers of arrays of one dim, which the compiler makes all_reduces of the whole, are combined as these: after an update
under ZeRO a step gathers each bias and each norm's scale, 89 of them in a UNet.

XLA:GPU (`collective_combiner_utils.h`, `gpu_all_gather_combiner.cc`) asks for no distance, and combines gathers too: in
program order, what depends on no other of its batch. A batch runs when its first result is wanted, if all is ready:

    %w1 = all_gather ...     for layer 1      \
    %w2 = all_gather ...     for layer 2       } one gather in front of layer 1; all three live from then
    %w3 = all_gather ...     for layer 3      /
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import LocalArrays
from autopart.costmodel.compiled.fusion.kernel_graph import DEF_MOVE, KERNEL, KernelGraph
from autopart.costmodel.compiled.fusion.left_out import LeftOut
from autopart.costmodel.compiled.links.collective_seconds import saved_s
from autopart.costmodel.compiled.links.redistribution_costs import (
    COMBINABLE,
    COUNTED_BYTES,
    SENT_BYTES,
    combined_axes,
    combined_kind,
)
from autopart.costmodel.compiled.slots import NEVER, before
from autopart.costmodel.hardware.links import Links

MAX_COMBINED = 256
"""Operands of one combined collective, XLA's limit."""

SOON_OPS = 100
"""A reduction whose result is read this soon after is left alone."""


class Wires(NamedTuple):
    """What combined collectives are priced by: arrays of `Links`, and how the device's compiler combines.

    combine_bytes   of one combined collective, at most; 0: none are
    by_dependence   results may be wanted soon, and batches run when their first is (XLA:GPU)
    """

    segments: np.ndarray
    fabrics: np.ndarray
    curves: np.ndarray
    combine_bytes: float
    by_dependence: bool

    @staticmethod
    def of(links: Links) -> Wires:
        """Those of a mesh."""
        device = links.device
        return Wires(links.segments, links.fabrics, links.curves, float(device.combine_bytes), device.is_xla_gpu)


class Batches(NamedTuple):
    """What waits together, by kind of reduction, by node and by buffer: scratch of `combine_reductions`.

    needed[buffer]           the first slot at which a redistributed result is read
    held, joined, deadline, open_batch, scope   of the batch of a kind that nodes may still join: its bytes, how many
                             joined, the first slot at which a result is needed, its number (-1: none), its scope
    stand_bytes, stand_joined   of a batch that has begun before the layer that stands for others, what joined there
    begun_there              1 where it has begun there
    batch_of[node]           the batch that it joined, or -1; ends[batch]: the slot at which it runs
    ready                    of the batch of a kind: the slot at which the last of its operands is there
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
    ready: np.ndarray


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
    wires: Wires,
    made: np.ndarray,
    left_out: LeftOut,
    def_values: np.ndarray,
    batches: Batches,
    slot: np.ndarray,
    saved: np.ndarray,
) -> None:
    """Changes `slot`, where reductions wait for each other; fills in the seconds that each saves.

    Nodes are taken in program order. plan_rows[k]: the row of node k's plan in `figures` (`KnownPlans`); def_values[d]:
    the value of place d; made[buffer]: the slot at which it is there as planned.
    """
    needed, held, joined, deadline = batches.needed, batches.held, batches.joined, batches.deadline
    open_batch, scope, batch_of, ends = batches.open_batch, batches.scope, batches.batch_of, batches.ends
    stand_bytes, stand_joined, begun_there = batches.stand_bytes, batches.stand_joined, batches.begun_there
    nodes, begun, ready = graph.nodes.shape[0], 0, batches.ready
    for g in range(open_batch.shape[0]):
        open_batch[g] = -1
    for k in range(nodes):
        saved[k], batch_of[k] = 0.0, -1
        for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
            buffer = graph.reads.read_buffer[i]
            needed[buffer] = min(needed[buffer], slot[k])
        if graph.nodes.kind[k] != KERNEL:
            needed[graph.write_buffer[graph.write_ptr[k]]] = NEVER
    for k in range(nodes):
        g, wanted_at = kind_of(graph, figures, plan_rows[k], k), NEVER
        counted, at = figures[COUNTED_BYTES, plan_rows[k]], slot[k]
        for i in range(graph.write_ptr[k], graph.write_ptr[k + 1]):
            wanted_at = min(wanted_at, needed[graph.write_buffer[i]])
        if g < 0 or counted <= 0.0:
            continue
        if not wires.by_dependence:
            if wanted_at < NEVER and wanted_at - slot[k] < before(SOON_OPS):
                continue
        else:
            at = 0
            for i in range(graph.read_ptr[k], graph.read_ptr[k + 1]):
                at = max(at, made[graph.reads.read_buffer[i]])
        subject = graph.nodes.subject[k]
        value = def_values[subject] if graph.nodes.kind[k] == DEF_MOVE else local.moves.moved_value[subject]
        stands = left_out.layers > 0 and left_out.one_before[value] >= 0
        if open_batch[g] >= 0 and not stands:
            held[g] += left_out.layers * stand_bytes[g]
            joined[g] += left_out.layers * stand_joined[g]
            stand_bytes[g], stand_joined[g] = 0.0, 0
        fits = held[g] + counted <= wires.combine_bytes and joined[g] < MAX_COMBINED
        waits = open_batch[g] >= 0 and at < deadline[g] and scope[g] == graph.nodes.scope[k]
        if not fits or not waits or (wires.by_dependence and ready[g] >= wanted_at):
            open_batch[g], begun = begun, begun + 1
            held[g], joined[g], deadline[g] = 0.0, 0, NEVER
            stand_bytes[g], stand_joined[g], begun_there[g] = 0.0, 0, stands
            scope[g], ready[g], ends[open_batch[g]] = graph.nodes.scope[k], at, slot[k]
        else:
            sent, number = figures[SENT_BYTES, plan_rows[k]], int(figures[COMBINABLE, plan_rows[k]])
            beside = held[g] * sent / counted if wires.by_dependence else sent  # elsewhere all but latency is linear
            saved[k] = saved_s(
                combined_kind(number), sent, beside, combined_axes(number),
                wires.segments, wires.fabrics, wires.curves,
            )  # fmt: skip
        held[g] += counted
        joined[g] += 1
        if stands and not begun_there[g]:
            stand_bytes[g] += counted
            stand_joined[g] += 1
        deadline[g] = min(deadline[g], wanted_at)
        batch_of[k], ready[g] = open_batch[g], max(ready[g], at)
        ends[batch_of[k]] = max(ends[batch_of[k]], ready[g] + 1) if wires.by_dependence else slot[k]
    for k in range(nodes):
        if batch_of[k] >= 0:
            slot[k] = ends[batch_of[k]]
