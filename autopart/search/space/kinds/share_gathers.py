"""share_gathers: an array that is stored in parts is gathered once for uses that are near each other.

    all_gather params/up, dot (forward), ..., all_gather params/up, dot (backward)     by default: least memory
    all_gather params/up, dot (forward), ..., dot (backward)                           half the communication

The cost model says whether the seconds are worth the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autopart.core.table.actions import Action, ShareGathers
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind
from autopart.search.space.facts import ProgramFacts

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace

SHARE_OF_BYTES = 0.2
"""Its prior over the share of repeated reads' bytes that it spares: a gather is a part of a step."""


@register_decision_kind("share_gathers")
@dataclass(frozen=True)
class ShareGathersKind(DecisionKind):
    """See the module. `target` is how many ops apart uses may be that share a gather."""

    goes_by_groups = True

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return decision.target in facts.repeated_reads.distances

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        if decision.target <= partitioning.share_within:
            return []
        partitioning.share_gathers(decision.target)
        return [ShareGathers(decision.target)]

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"share_gathers<{decision.target}>"

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """Distances within which some array is gathered twice in this state, and no earlier decision shares it."""
        reads = space.facts.repeated_reads
        if not len(reads.first):
            return []
        spared = reads.in_bytes * (reads.gathered(partitioning) & (reads.apart > partitioning.share_within))
        found, total = [], float(reads.in_bytes.sum())
        for within in reads.distances:
            share = float(spared[reads.apart <= within].sum()) / total
            if share > 0:
                found.append(Option(Decision("share_gathers", within, -1, ""), SHARE_OF_BYTES * share))
        return found

    def refinements(self, facts: ProgramFacts, decision: Decision) -> list[tuple[Decision, ...]]:
        """The same within other distances."""
        others = [d for d in facts.repeated_reads.distances if d != decision.target]
        return [(Decision(decision.kind, within, -1, ""),) for within in others]
