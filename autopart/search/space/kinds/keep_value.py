"""keep_value: atomic<v, axis> for one value that nothing has been decided about, the smallest part of a `keep`.

keep_value<%12>, tile<%10, 0>, propagate     what is tiled before %12 stays tiled; what follows from %12 stays whole
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.tile_and_keep import keep_each


@register_decision_kind("keep_value")
@dataclass(frozen=True)
class KeepValue(DecisionKind):
    """See the module. `target` is a value. Only `ap.ILP` takes it."""

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """See `DecisionKind.values`."""
        return np.array([decision.target], np.int32)

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return 0 <= decision.target < facts.program.value_count and decision.dim == -1

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        return keep_each(partitioning, self.values(facts, decision), decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"atomic<{facts.program.shown_name(decision.target)}, {decision.axis}>"
