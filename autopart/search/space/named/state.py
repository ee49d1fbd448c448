"""Schedules that store state in parts: parameters and optimizer state of a training step (ZeRO).

    ZeRO2        optimizer state in parts, parameters whole     gradients are reduce_scattered, updates gathered
    ZeRO3        both in parts                                  parameters are gathered where they are read
    ZeRO3Large   both in parts, of large arrays                 what is small is reduced with others, in one collective

With DP over the same axes ZeRO3 is called FSDP. ZeRO-1 stores what ZeRO2 stores, and reduces whole gradients; where a
gradient goes straight into its update, as it does without accumulation, the two are one program here, the cheaper one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named_schedules import Named, NamedSchedule, register_named_schedule

LARGE = 2**18
"""Elements of an array whose update takes longer whole than the latencies of gathering its parts, as f32 on most
devices; the usual default of FSDP's users too."""


@register_named_schedule("ZeRO2")
@dataclass(frozen=True)
class ZeroTwo(NamedSchedule):
    """Optimizer state in parts."""

    of_state: ClassVar[bool] = True

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            if 0 < len(space.facts.optimizer_state) < len(space.facts.updated):
                yield Named(f"ZeRO2({axis})", (Decision("zero2", 0, -1, axis),), (axis,), stores=True)


@register_named_schedule("ZeRO3")
@dataclass(frozen=True)
class ZeroThree(NamedSchedule):
    """Parameters and optimizer state in parts."""

    of_state: ClassVar[bool] = True

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            if len(space.facts.updated):
                yield Named(f"ZeRO3({axis})", (Decision("zero3", 0, -1, axis),), (axis,), stores=True)


@register_named_schedule("ZeRO3Large")
@dataclass(frozen=True)
class ZeroThreeOfLarge(NamedSchedule):
    """Parameters and optimizer state in parts, of arrays of at least `LARGE` elements."""

    of_state: ClassVar[bool] = True

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        program, updated = space.program, space.facts.updated.tolist()
        is_large = [math.prod(program.type_of(v).shape) >= LARGE for v in updated]
        for axis in space.axes:
            if any(is_large) and not all(is_large):
                yield Named(f"ZeRO3Large({axis})", (Decision("zero3", LARGE, -1, axis),), (axis,), stores=True)
