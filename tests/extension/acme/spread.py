"""A kind of decision: every argument of rank four on dim 1, all at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.search.space import (
    Action,
    Decision,
    DecisionKind,
    DecisionSpace,
    Option,
    Partitioning,
    ProgramFacts,
    register_decision_kind,
    tile_each,
)


@register_decision_kind("acme_spread")
@dataclass(frozen=True)
class Spread(DecisionKind):
    """tile<a, 1> of each argument of rank four."""

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """See `DecisionKind`."""
        arguments = facts.program.arguments
        return np.array([a for a in arguments if len(facts.program.type_of(a).shape) == 4], np.int32)

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """Over each axis on which the arguments are still whole."""
        values = self.values(space.facts, Decision("acme_spread", 0, -1, ""))
        free = [a for a in axes if all(partitioning.tiled_dim(int(v), a) < 0 for v in values)]
        return [Option(Decision("acme_spread", 0, -1, axis), 0.5) for axis in free]

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind`."""
        return tile_each(partitioning, self.values(facts, decision), 1, decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind`."""
        return f"spread<{decision.axis}>"
