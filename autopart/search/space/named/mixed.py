"""Schedules that divide weights where these are large and data everywhere else, over one and the same axis.

convolutions [3,3,64,64] on images [256,32,32,64]     data: a weight has 0.1 MB, an image 0.3
dense [65536,1024] on rows [256,65536]                weights: 268 MB, and rows of 67 MB in all
embeddings [10^7,64] of a recommender                 weights: few rows of a table are read

With data parallelism alone the gradient of each weight is reduced; here a large weight is divided, and the rows that it
is multiplied with are gathered instead. Known from convolutional nets (Krizhevsky, "One weird trick for parallelizing
convolutional neural networks", 2014) and from recommenders, there called hybrid parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.kinds.tile_group import KIND
from autopart.search.space.named.inputs import Inputs, scratch
from autopart.search.space.named.model import best_dims, divided, weight_probes
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
            if inputs.batch and large:
                decisions = (*large, *inputs.batch)
                yield Named(f"LargeWeights({axis})", (*decisions, *_behind(space, decisions, inputs)), (axis,))


def _is_large(space: DecisionSpace, probe: Probe, inputs: Inputs) -> bool:
    """True if the weights have more bytes than what would move where they are divided, and no data is divided too."""
    decision = probe.decision
    if float(space.facts.value_bytes[space.values(decision)].sum()) <= probe.moved * space.facts.total_bytes:
        return False
    with scratch(space) as partitioning:
        space.apply(partitioning, decision)
        return all(partitioning.tiled_dim(v, decision.axis) < 0 for v in inputs.arguments)


def _behind(space: DecisionSpace, decisions: Decisions, inputs: Inputs) -> Decisions:
    """Other inputs on their batch dim, where that divides work: labels, which images do not reach through a divided
    weight."""
    axis, found = decisions[0].axis, []
    with scratch(space) as partitioning:
        for decision in decisions:
            space.apply(partitioning, decision)
        for value, dim in inputs.dims.items():
            mark, before = partitioning.mark(), divided(space, partitioning, axis)
            decision = Decision(KIND, int(space.facts.groups.of[value]), dim, axis)
            if space.apply(partitioning, decision) and divided(space, partitioning, axis) > before:
                found.append(decision)
            else:
                partitioning.undo(mark)
    return tuple(found)
