"""zero2: optimizer state on its first dim that the axis divides, the parameters whole (ZeRO-2).

An updated array that a matrix op reads is a parameter; the others are optimizer state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.kinds.zero3 import all_but_one_group, bytes_saved
from autopart.search.space.tile_and_keep import keep_each, store_each

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace

SHARE_OF_ZERO3 = 0.7
"""Its prior over that of `zero3`: with Adam, two of three updated arrays are optimizer state."""


@register_decision_kind("zero2")
@dataclass(frozen=True)
class Zero2(DecisionKind):
    """See the module. `target` and `dim` say nothing."""

    goes_by_groups = True

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        parameters = facts.updated[~np.isin(facts.updated, facts.optimizer_state)]
        kept = keep_each(partitioning, parameters, decision.axis)
        return kept + store_each(facts, partitioning, facts.optimizer_state, decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"tile<optimizer state, first divisible dim, {decision.axis}>, parameters whole"

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """One per axis along which some updated array is undecided, where there are both parameters and state."""
        facts = space.facts
        if not 0 < len(facts.optimizer_state) < len(facts.updated):
            return []
        saved = bytes_saved(facts, partitioning, axes)
        return [Option(Decision("zero2", 0, -1, a), SHARE_OF_ZERO3 * share) for a, share in saved.items() if share > 0]

    def refinements(self, facts: ProgramFacts, decision: Decision) -> list[tuple[Decision, ...]]:
        """All updated arrays but those of one group."""
        return all_but_one_group(facts, decision)
