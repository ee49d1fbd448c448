"""Schedules that divide some weights, and data everywhere else, over one and the same axis.

LargeWeights   convolutions [3,3,64,64] on images [256,32,32,64]     data: a weight has 0.1 MB, an image 0.3
               dense [65536,1024] on rows [256,65536]                weights: 268 MB, and rows of 67 MB in all
               tables [10^7,64] of a recommender                     weights: few rows of a table are read
GShard         experts [8,1024,4096] on tokens [8,512,1024]          experts: tokens travel to them, and back
               everything between them                               data

With data parallelism alone the gradient of each weight is reduced; here such a weight is divided, and what it is
multiplied with is exchanged instead. The first is known from convolutional nets (Krizhevsky, "One weird trick for
parallelizing convolutional neural networks", 2014) and from recommenders, there called hybrid parallelism; the second
from Lepikhin et al., "GShard", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.kinds.tile_group import KIND
from autopart.search.space.named.experts import experts
from autopart.search.space.named.inputs import Inputs, scratch
from autopart.search.space.named.model import best_dims, divided, is_table, weight_probes
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule
from autopart.search.space.probe import Probe


@register_named_schedule("LargeWeights")
@dataclass(frozen=True)
class LargeWeights(NamedSchedule):
    """Each device holds its share of large weights, and computes the rest on its share of the batch."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            inputs = Inputs.of(space, axis)
            large = best_dims(space, [p for p in weight_probes(space, axis) if _is_large(space, p, inputs)])
            yield Named(f"LargeWeights({axis})", _with_batch(space, large, inputs), (axis,))


@register_named_schedule("GShard")
@dataclass(frozen=True)
class GShard(NamedSchedule):
    """Each device holds its share of the experts, and computes the rest on its share of the batch."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            decisions = _with_batch(space, experts(space, axis), Inputs.of(space, axis))
            yield Named(f"GShard({axis})", decisions, (axis,))


def _with_batch(space: DecisionSpace, weights: Decisions, inputs: Inputs) -> Decisions:
    """The weights first, then every input on its batch dim: none where there is nothing of one of them.

    Labels are not reached from images through a divided weight: such inputs are tiled too, where that divides work.
    """
    if not weights or not inputs.batch:
        return ()
    axis, behind = weights[0].axis, []
    with scratch(space) as partitioning:
        for decision in (*weights, *inputs.batch):
            space.apply(partitioning, decision)
        for value, dim in inputs.dims.items():
            mark, before = partitioning.mark(), divided(space, partitioning, axis)
            decision = Decision(KIND, int(space.facts.groups.of[value]), dim, axis)
            if space.apply(partitioning, decision) and divided(space, partitioning, axis) > before:
                behind.append(decision)
            else:
                partitioning.undo(mark)
    return (*weights, *inputs.batch, *behind)


def _is_large(space: DecisionSpace, probe: Probe, inputs: Inputs) -> bool:
    """True if the weights have more bytes than what would move where they are divided, and no data is divided too.

    Tables are divided by whole rows: a TPU pads parts of rows to 128 numbers each.
    """
    decision = probe.decision
    if is_table(space, probe) and decision.dim == space.program.value_rank[space.values(decision)[0]] - 1:
        return False
    if float(space.facts.value_bytes[space.values(decision)].sum()) <= probe.moved * space.facts.total_bytes:
        return False
    with scratch(space) as partitioning:
        space.apply(partitioning, decision)
        return all(partitioning.tiled_dim(v, decision.axis) < 0 for v in inputs.arguments)
