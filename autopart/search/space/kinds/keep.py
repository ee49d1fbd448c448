"""keep: atomic<v, axis> for every value v of a value group that nothing has been decided about.

zero3                                        every updated array is tiled, the embedding as well
keep<params/embedding>, zero3                the embedding is whole on every device
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.tile_and_keep import keep_each


@register_decision_kind("keep")
@dataclass(frozen=True)
class Keep(DecisionKind):
    """See the module. `target` is a value group. Only refinement takes it, before a `zero3` or a `zero2`."""

    goes_by_groups = True

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """See `DecisionKind.values`."""
        return facts.groups.values(decision.target)

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return 0 <= decision.target < facts.groups.count

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        return keep_each(partitioning, self.values(facts, decision), decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"atomic<{facts.named(self.values(facts, decision))}, {decision.axis}>"
