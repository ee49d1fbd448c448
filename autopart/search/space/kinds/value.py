"""value: tile<v, dim, axis> for one value, the smallest part of a `tile_group`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.tile_and_keep import tile_each


@register_decision_kind("value")
@dataclass(frozen=True)
class Value(DecisionKind):
    """See the module. `target` is a value. Only refinement takes it."""

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """See `DecisionKind.values`."""
        return np.array([decision.target], np.int32)

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return 0 <= decision.target < facts.program.value_count and facts.has_dim(decision.dim)

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        return tile_each(partitioning, self.values(facts, decision), decision.dim, decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"tile<{facts.program.shown_name(decision.target)}, {decision.dim}, {decision.axis}>"
