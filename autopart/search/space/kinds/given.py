"""given: a list of actions that a user brought along as a seed, taken as one decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autopart.core.table.actions import Action, Atomic, Propagate, ShardLoops, ShareGathers, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, register_decision_kind
from autopart.search.space.facts import ProgramFacts


@register_decision_kind("given")
@dataclass(frozen=True)
class Given(DecisionKind):
    """See the module. `target` is a place in `facts.given`."""

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return 0 <= decision.target < len(facts.given)

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """Applies what is legal of the actions, in order."""
        return _replayed(partitioning, facts.given[decision.target])

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"schedule {decision.target}"

    def seeds(self, facts: ProgramFacts) -> list[tuple[Decision, ...]]:
        """Each list of actions by itself."""
        return [(Decision("given", i, -1, ""),) for i in range(len(facts.given))]


def _replayed(partitioning: Partitioning, actions: Sequence[Action]) -> list[Action]:
    taken: list[Action] = []
    for action in actions:
        match action:
            case Tile(value, dim, axis):
                if partitioning.tiled_dim(value, axis) == dim or partitioning.why_not_tile(value, dim, axis):
                    continue
            case Atomic(value, axis):
                if partitioning.tiled_dim(value, axis) >= 0:
                    continue
            case ShareGathers(within):
                if within <= partitioning.share_within:
                    continue
            case ShardLoops():
                if partitioning.sharded_loops:
                    continue
            case Propagate():
                pass
        partitioning.apply(action)
        taken.append(action)
    return taken if any(not isinstance(a, Propagate) for a in taken) else []
