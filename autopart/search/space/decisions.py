"""Decisions: what an optimizer chooses between. Each stands for a few actions on many values.

    role    tile<v, dim, axis> for every value v of a role, in turn
    exact   the same for the values of a role that also agree in size: a role's part
    value   the same for one value
    keep    atomic<v, axis> for every value of a role
    stored  each array that the program updates, on the first dim that divides: parameters and optimizer state (ZeRO-3)
    slots   each updated array that no matrix op reads, so the optimizer's; the others are kept whole (ZeRO-2)
    given   a list of actions that the user or a named schedule brought along

A decision is a name: what it does depends on the partitioning it is applied to, and is never illegal, only empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS = ("role", "exact", "value", "keep", "stored", "slots", "given")


@dataclass(frozen=True, order=True)
class Decision:
    """`kind` of `KINDS`; `target` is a role, a value or a place in the given lists; `dim` -1: not chosen."""

    kind: str
    target: int
    dim: int
    axis: str

    def to_json(self) -> list[Any]:
        """As it stands in records."""
        return [self.kind, self.target, self.dim, self.axis]

    @staticmethod
    def from_json(row: list[Any]) -> Decision:
        """What `to_json` wrote; raises `ValueError` on anything else."""
        kind, target, dim, axis = row
        if kind not in KINDS or not isinstance(target, int) or not isinstance(dim, int) or not isinstance(axis, str):
            raise ValueError(f"{row!r} is not a decision")
        return Decision(kind, target, dim, axis)


@dataclass(frozen=True)
class Option:
    """A legal next decision; `prior` is its share of the bytes and flop at stake, all options' adding up to 1."""

    decision: Decision
    prior: float
