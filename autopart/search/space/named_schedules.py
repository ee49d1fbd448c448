"""Schedules that people use, found in any program by its structure: where a seeded search starts.

    replicated   nothing
    BP           an input that the program does not update, on dim 0: the one that reaches most first
    Megatron     matrices on dims that do not spread to all the others: heads, hidden dims; what is left is inferred
    Z2, Z3       optimizer state; optimizer state and parameters, on their first divisible dim

Each alone on each axis, and BP on one with Megatron on another, with Z2 or Z3 on either: 30 sequences for two axes.
"""

from __future__ import annotations

from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision

NARROW = 0.6
"""A share of what the furthest probe on an axis reaches: beyond it, a decision spreads over the whole program."""

Decisions = tuple[Decision, ...]


def named_schedules(space: DecisionSpace) -> list[tuple[str, Decisions]]:
    """(name, decisions) of each; empty ones are left out, equal ones are listed once."""
    found: list[tuple[str, Decisions]] = []
    batch = {axis: _batch(space, axis) for axis in space.axes}
    megatron = {axis: _megatron(space, axis) for axis in space.axes}
    for a in space.axes:
        found += [(f"{name}({a})", s) for name, s in _sharded(a, "BP", batch[a])]
        found += [(f"{name}({a})", s) for name, s in _sharded(a, "Megatron", megatron[a])]
        for b in space.axes:
            if a != b:
                both = (*batch[a], *megatron[b])
                found += [(f"{name}({a},{b})", s) for name, s in _sharded(a, "BP+Megatron", both)]
                found += [(f"BP+BP({a},{b})", (*batch[a], *batch[b]))]
                found += [(f"{name}({b})", s) for name, s in _sharded(b, f"BP({a})+", batch[a])]
    unique = {s: name for name, s in reversed(found) if s}
    return [(name, s) for s, name in reversed(list(unique.items()))]


def _sharded(axis: str, name: str, decisions: Decisions) -> list[tuple[str, Decisions]]:
    return [
        (name, decisions),
        (f"{name}+Z2", (*decisions, Decision("zero2", 0, -1, axis))),
        (f"{name}+Z3", (*decisions, Decision("zero3", 0, -1, axis))),
    ]


def _batch(space: DecisionSpace, axis: str) -> Decisions:
    updated = set(space.facts.updated.tolist())
    for probe in space.probes:
        d = probe.decision
        if d.axis == axis and d.dim == 0 and not updated & set(space.values(d).tolist()) and not _is_matrix(space, d):
            return (d,)
    return ()


def _megatron(space: DecisionSpace, axis: str) -> Decisions:
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
