"""shard_loops: loops hold parts of what is stored in parts, and gather and reduce in every turn.

    all_gather params/up, loop over microbatches, all_reduce or reduce_scatter      by default: least communication
    loop over microbatches: all_gather params/up, ..., reduce_scatter               parameters and gradients in parts

The cost model says whether the memory is worth the seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autopart.core.table.actions import Action, ShardLoops
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind
from autopart.search.space.facts import ProgramFacts

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace

SHARE_OF_BYTES = 0.2
"""Its prior over the share of bytes that loops hold whole: it saves memory, and costs seconds."""


@register_decision_kind("shard_loops")
@dataclass(frozen=True)
class ShardLoopsKind(DecisionKind):
    """See the module."""

    goes_by_groups = True

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        if partitioning.sharded_loops:
            return []
        partitioning.shard_loops()
        return [ShardLoops()]

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return "shard_loops"

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """The decision, where loops hold something whole in this state."""
        reads = space.facts.loop_reads
        if partitioning.sharded_loops or not reads.total:
            return []
        share = reads.held_whole(partitioning)
        return [Option(Decision("shard_loops", 0, -1, ""), SHARE_OF_BYTES * share)] if share > 0 else []
