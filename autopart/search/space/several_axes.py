"""Named schedules over several axes: one for each axis, put together under the name that people know.

    DP(data), DP(fsdp), Megatron(model)            DP(data,fsdp)+Megatron(model)
    DP(data), DP(fsdp), ZeRO3(data), ZeRO3(fsdp)   FSDP(data,fsdp)
    DP(data), DP(fsdp), ZeRO3(fsdp)                HSDP(data,fsdp)       replicas over data, shards over fsdp

A part that does nothing after those before it is left out, so a name says what was done: a batch of 4 rows on
{data:4, fsdp:4} is DP(data).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named_schedules import Decisions, Named

DATA, SHARDED = ("DP", "Edges"), "ZeRO3"

REPLICATED = "replicated"
"""The name of no parts at all: nothing is tiled."""


@dataclass(frozen=True)
class Combined:
    """Named schedules that are carried out one after the other.

    label        the name of the parts together; see the module
    decisions    those of them that do something
    state        fingerprint of the partitioning that they lead to
    """

    label: str
    decisions: Decisions
    state: int = 0

    @staticmethod
    def given(label: str, decisions: Decisions) -> Combined:
        """A sequence of decisions that somebody brought along."""
        return Combined(label, decisions)


def combined(space: DecisionSpace, parts: Sequence[Named]) -> Combined:
    """The parts in turn from the space's start, those that store state last; tried with fewer layers where that says
    what they do to the whole program."""
    found = _combined(space.trying(d for part in parts for d in part.decisions), parts)
    return found or _combined(space, parts) or Combined("", ())


def _combined(space: DecisionSpace, parts: Sequence[Named]) -> Combined | None:
    """None where the space is of fewer layers, and decisions lead these apart."""
    start = space.start
    mark = start.mark()
    kept: list[Named] = []
    decisions: list[Decision] = []
    try:
        for part in sorted(parts, key=lambda p: p.stores):
            done = [d for d in part.decisions if space.apply(start, d)]
            if done:
                kept.append(part)
                decisions += done
        if not space.facts.holds_for_whole(start):
            return None
        return Combined(label_of(kept), tuple(decisions), start.fingerprint)
    finally:
        start.undo(mark)


def label_of(parts: Sequence[Named]) -> str:
    """The name of parts together; `REPLICATED` where there is none."""
    axes: dict[str, list[str]] = {}
    for part in parts:
        axes.setdefault(part.role, []).extend(part.axes)
    data = next((role for role in DATA if role in axes), "")
    shards = axes.get(SHARDED, [])
    if data == "DP" and shards and set(shards) == set(axes[data]):
        axes = {"FSDP": axes.pop(data), **{r: a for r, a in axes.items() if r not in (data, SHARDED)}}
    elif data == "DP" and len(shards) == 1 and len(axes[data]) == 2 and shards[0] in axes[data]:
        replicas = [a for a in axes.pop(data) if a not in shards]
        axes = {"HSDP": [*replicas, *shards], **{r: a for r, a in axes.items() if r != SHARDED}}
    names = [f"{role}({','.join(over)})" if over else role for role, over in axes.items()]
    return "+".join(names) or REPLICATED
