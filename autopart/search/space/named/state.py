"""Schedules that store state in parts: parameters and optimizer state of a training step (ZeRO).

    ZeRO2    optimizer state in parts, parameters whole     gradients are reduce_scattered, updates gathered
    ZeRO3    both in parts                                  parameters are gathered where they are read

With DP over the same axes ZeRO3 is called FSDP. ZeRO-1 stores what ZeRO2 stores, and reduces whole gradients; where a
gradient goes straight into its update, as it does without accumulation, the two are one program here, the cheaper one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named_schedules import Named, NamedSchedule, register_named_schedule


@register_named_schedule("ZeRO2")
@dataclass(frozen=True)
class ZeroTwo(NamedSchedule):
    """Optimizer state in parts."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            if 0 < len(space.facts.optimizer_state) < len(space.facts.updated):
                yield Named(f"ZeRO2({axis})", (Decision("zero2", 0, -1, axis),), (axis,), stores=True)


@register_named_schedule("ZeRO3")
@dataclass(frozen=True)
class ZeroThree(NamedSchedule):
    """Parameters and optimizer state in parts."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            if len(space.facts.updated):
                yield Named(f"ZeRO3({axis})", (Decision("zero3", 0, -1, axis),), (axis,), stores=True)
