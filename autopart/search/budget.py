"""How much a search may spend, and how it ends early."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from autopart.base.arguments import number, shown, whole
from autopart.base.errors import PartitionError


class BudgetError(PartitionError):
    """A budget that is negative or not a number."""


class BudgetSpent(Exception):
    """The budget is spent: raised by `Problem.run`, and meant to leave the optimizer."""


@dataclass(frozen=True)
class Budget:
    """At most so many evaluations (states that are costed) and so many seconds; None: no such limit.

    A search with the same budget in evaluations and the same seed gives the same answer; seconds depend on the machine.
    Seconds count from when the first worker is ready and the starting state and the named schedules are costed:
    start-up is no part of them, and a second is enough to be no worse than any named schedule. Evaluations count the
    named schedules, one each.
    `Budget(evaluations=0)` leaves the partitioning as the earlier tactics left it.
    """

    evaluations: int | None = 1000
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, kind in (("evaluations", whole(0)), ("seconds", number(0))):
            value = getattr(self, name)
            if value is not None and not kind.legal(value):
                raise BudgetError(f"a budget of {shown(value)} {name}", why=f"it is {kind.says}, or None")
        if self.evaluations is None and self.seconds is None:
            raise BudgetError("a budget without limits", hint="Budget(evaluations=1000), or Budget(seconds=60)")


class BudgetMeter:
    """Counts what has been spent of a budget: evaluations since it was made, seconds since it was made or `begin`.

    While the clock is held, no seconds are spent: whatever is done then is done to its end.
    """

    def __init__(self, budget: Budget):
        self.budget, self.evaluations, self._start = budget, 0, time.monotonic()

    def hold(self) -> None:
        """Stops the clock until `begin`."""
        self._start = math.inf

    def begin(self) -> None:
        """Starts the clock anew."""
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return max(0.0, time.monotonic() - self._start)

    @property
    def deadline(self) -> float:
        """The time.monotonic() at which the seconds are spent."""
        return self._start + self.budget.seconds if self.budget.seconds is not None else float("inf")

    @property
    def evaluations_left(self) -> float:
        """Evaluations that may still be made."""
        return float("inf") if self.budget.evaluations is None else self.budget.evaluations - self.evaluations

    @property
    def share(self) -> float:
        """The share of the budget that is spent: of its evaluations, or where they are not limited of its seconds."""
        if self.budget.evaluations is not None:
            return self.evaluations / max(1, self.budget.evaluations)
        return self.seconds_share

    @property
    def seconds_share(self) -> float:
        """The share of its seconds that is spent; 0 where they are not limited."""
        return 0.0 if self.budget.seconds is None else self.seconds / max(1e-9, self.budget.seconds)

    @property
    def spent(self) -> bool:
        """True if nothing is left."""
        return self.evaluations_left <= 0 or time.monotonic() >= self.deadline
