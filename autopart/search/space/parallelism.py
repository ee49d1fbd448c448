"""The named schedules of autopart itself: batch parallelism, Megatron, ZeRO, and pairs of them.

    BP           an input that the program does not update, on dim 0: the one that reaches most first
    Megatron     matrices on dims that do not spread to all the others: heads, hidden dims; what is left is inferred
    Z2, Z3       optimizer state; optimizer state and parameters, on their first divisible dim

BP and Megatron alone on each axis, and BP on one with Megatron on another, with Z2 or Z3 on either: 30 sequences for
two axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule

NARROW = 0.6
"""A share of what the furthest probe on an axis reaches: beyond it, a decision spreads over the whole program."""


@register_named_schedule("BP")
@dataclass(frozen=True)
class BatchParallelism(NamedSchedule):
    """Each device computes on its share of the inputs; with ZeRO it also keeps its share of the state."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield from _sharded("BP", batch(space, axis), axis, (axis,))


@register_named_schedule("Megatron")
@dataclass(frozen=True)
class Megatron(NamedSchedule):
    """Each device holds its share of heads and hidden dims."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield from _sharded("Megatron", megatron(space, axis), axis, (axis,))


@register_named_schedule("BP+Megatron")
@dataclass(frozen=True)
class BatchAndMegatron(NamedSchedule):
    """Inputs over one axis, heads and hidden dims over another."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        inputs, matrices = {a: batch(space, a) for a in space.axes}, {a: megatron(space, a) for a in space.axes}
        for a, b in itertools.permutations(space.axes, 2):
            yield from _sharded("BP+Megatron", (*inputs[a], *matrices[b]), a, (a, b))


@register_named_schedule("BP+BP")
@dataclass(frozen=True)
class BatchOverTwo(NamedSchedule):
    """Inputs over two axes."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        inputs = {a: batch(space, a) for a in space.axes}
        for a, b in itertools.permutations(space.axes, 2):
            yield Named(f"BP+BP({a},{b})", (*inputs[a], *inputs[b]), (a, b))


@register_named_schedule("BP+ZeRO")
@dataclass(frozen=True)
class BatchAndZero(NamedSchedule):
    """Inputs over one axis, state over another."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        inputs = {a: batch(space, a) for a in space.axes}
        for a, b in itertools.permutations(space.axes, 2):
            for named in _sharded(f"BP({a})+", inputs[a], b, (b,)):
                yield named._replace(axes=(a, b))


def _sharded(name: str, decisions: Decisions, state: str, over: tuple[str, ...]) -> list[Named]:
    """The decisions alone, with optimizer state over `state`, and with all state over it; labels name `over`."""
    zero = {"": (), "+Z2": (Decision("zero2", 0, -1, state),), "+Z3": (Decision("zero3", 0, -1, state),)}
    return [Named(f"{name}{which}({','.join(over)})", (*decisions, *more), over) for which, more in zero.items()]


def batch(space: DecisionSpace, axis: str) -> Decisions:
    """The tile of an input's dim 0 that reaches most; none if the program has no such input."""
    updated = set(space.facts.updated.tolist())
    for probe in space.probes:
        d = probe.decision
        if d.axis == axis and d.dim == 0 and not updated & set(space.values(d).tolist()) and not _is_matrix(space, d):
            return (d,)
    return ()


def megatron(space: DecisionSpace, axis: str) -> Decisions:
    """Narrow decisions about matrices, one per value group, those that reach most first."""
    on_axis = [p for p in space.probes if p.decision.axis == axis and p.distinct]
    most = max((p.reached for p in on_axis), default=0.0)
    found: dict[int, Decision] = {}
    for probe in on_axis:
        if probe.reached <= NARROW * most and _is_matrix(space, probe.decision):
            found.setdefault(probe.decision.target, probe.decision)
    return tuple(found.values())


def _is_matrix(space: DecisionSpace, decision: Decision) -> bool:
    return bool(space.facts.read_by_matrix[space.values(decision)[0]])
