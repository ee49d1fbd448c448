"""What a solver hands out: the best choice it found, and how far from the optimum that may be.

Solution cost 532843, bound 530000, gap 0.5 %, feasible after 10.2 s
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from autopart.pairwise.pairwise_problem import Ints

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
"""`unknown`: nothing feasible was found, and nothing proves that there is none."""


@dataclass(frozen=True)
class Incumbent:
    """How far a solver is: seconds since it started, the best cost so far (inf: none) and the bound so far."""

    seconds: float
    cost: float
    bound: float

    @property
    def gap(self) -> float:
        """The share of the cost that may be saved, at most."""
        return gap(self.cost, self.bound)


@dataclass(frozen=True, eq=False)
class Solution:
    """The best choice found: one strategy for each node, or None where none is known.

    `bound` is a cost below which there is nothing: with status "optimal" it is the cost itself. `notes` say what went
    otherwise than usual, such as a solver that is missing. `least_usage` is, for an infeasible limit, the least of the
    most usage at any time that a choice was proved to need.
    """

    choice: Ints | None
    cost: float
    bound: float
    status: Status
    seconds: float
    incumbents: tuple[Incumbent, ...] = ()
    notes: tuple[str, ...] = field(default=())
    least_usage: float | None = None

    @property
    def gap(self) -> float:
        """The share of the cost that may be saved, at most; 0 where the choice is optimal."""
        return gap(self.cost, self.bound)

    def __str__(self) -> str:
        text = f"{self.status} after {self.seconds:.1f} s: cost {self.cost:g}, bound {self.bound:g}, gap {self.gap:.2%}"
        return "\n".join([text, *self.notes])


def gap(cost: float, bound: float) -> float:
    """(cost - bound) / |cost|; inf where either is not known, 0 where they are equal."""
    if cost == bound:
        return 0.0
    if not (math.isfinite(cost) and math.isfinite(bound)):
        return math.inf
    return max(0.0, cost - bound) / max(abs(cost), 1e-300)
