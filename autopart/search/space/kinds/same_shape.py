"""same_shape: tile<v, dim, axis> for the values of a group that also agree in size: a part of a `tile_group`.

tile_group  down/*/kernel    f32[3,3,64,64], f32[3,3,128,128], f32[3,3,256,256]
same_shape  three decisions, of which a refined result may leave one out
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.kinds.tile_group import value_decisions
from autopart.search.space.tile_and_keep import tile_each


@register_decision_kind("same_shape")
@dataclass(frozen=True)
class SameShape(DecisionKind):
    """See the module. `target` is a group of `facts.same_shape`. Only refinement takes it."""

    goes_by_groups = True

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """See `DecisionKind.values`."""
        return facts.same_shape.values(decision.target)

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return 0 <= decision.target < facts.same_shape.count and facts.has_dim(decision.dim)

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        return tile_each(partitioning, self.values(facts, decision), decision.dim, decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"tile<{facts.named(self.values(facts, decision))}, {decision.dim}, {decision.axis}>"

    def parts(self, facts: ProgramFacts, decision: Decision) -> list[Decision]:
        """Its values."""
        return value_decisions(self.values(facts, decision), decision)
