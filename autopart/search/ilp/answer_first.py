"""When plans, neighbourhoods and the bound have their turn: where seconds count, the answer comes first.

    |------ tree search ------|plans|--- tree search ---|parts|--- tree search ---|------ bound ------|
                              nothing better for a while                          the last of the seconds

A tree search costs hundreds of states in the seconds that a large program's plan takes. So until it finds nothing
better it has all the seconds, then a plan has a few, and the bound what is left at the end, or more where the search
has found nothing better for long. Where only evaluations count, the bound and the plans come before the search: they
cost none.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator

import numpy as np

from autopart.search.budget import BudgetSpent
from autopart.search.ilp.planning import Planner
from autopart.search.space.decisions import Decision

IDLE = 0.1
"""Share of the seconds without a better state after which plans, or parts chosen anew, have a turn."""

PLANS = 0.1
"""Share of the seconds that plans take at most; there are none where half of it is too short to build their model."""

BOUND, IDLE_BOUND, LEAST_SEARCHED = 0.15, 0.3, 0.6
"""The bound has the last share of the seconds; all that is left where the search has found nothing better for a second
share of them, once it had a third."""

BEFORE_BOUND = 1.5
"""The bound begins as long before the end as it takes to build so many times, at least."""

CERTAIN = 0.8
"""Share of the seconds that are left which the bound is given: what it builds and reduces knows no deadline."""

REST = 4.0
"""After parts were chosen anew in vain, the tree search has so many times their seconds."""


class Turns:
    """The turns of one search.

    rounds      plans at most in the turn of plans
    width       neighbourhoods at a time; 0: none
    patience    waves without a better state after which neighbourhoods have a turn
    """

    def __init__(self, planner: Planner, rounds: int, width: int = 0, patience: int = 1):
        self._planner, self._problem = planner, planner.problem
        self._rounds, self._width, self._patience = rounds, width, patience
        self._seconds = planner.problem.seconds_left
        self._timed = math.isfinite(self._seconds)
        self._planned = self._bounded = False
        self._best, self._best_at, self._waves, self._rested_at = planner.problem.best, 0.0, 0, 0.0
        self._random = np.random.default_rng(planner.problem.seed)

    @property
    def seeds(self) -> list[tuple[Decision, ...]]:
        """Where the search begins: a plan that is better than the named schedules, and these, the best first."""
        best, named = self._problem.best.decisions, [decisions for _, decisions in self._problem.seeds]
        return named if best in named else [best, *named]

    def bound(self) -> None:
        """The bound, if it is not known and what is left is enough to build its model."""
        if self._bounded:
            return
        self._bounded = True
        if self._planner.built_s > self._problem.seconds_left:
            self._planner.note(f"no time for a bound, whose model takes {self._planner.built_s:.1g} s to build")
        else:
            self._planner.bound(CERTAIN * self._problem.seconds_left)

    @contextlib.contextmanager
    def around(self) -> Generator[None]:
        """Has the turns before, between and after the waves of a search; the bound also where the budget ends it."""
        if not self._timed:
            self.bound()
            self._plans()
        self._problem.after_wave = self._look
        try:
            yield
            self._plans()
        except BudgetSpent:
            self.bound()
            raise
        finally:
            self._problem.after_wave = None
        self.bound()

    def _look(self) -> None:
        """After a wave: who has the next turn."""
        problem = self._problem
        problem.after_wave = None
        try:
            self._waves += 1
            if problem.best is not self._best:
                self._found()
            self._turn(problem.seconds_share - self._best_at)
        finally:
            problem.after_wave = self._look

    def _found(self) -> None:
        self._best, self._best_at, self._waves = self._problem.best, self._problem.seconds_share, 0

    def _turn(self, idle: float) -> None:
        """A turn after so large a share of the seconds without a better state."""
        share, built = self._problem.seconds_share, BEFORE_BOUND * self._planner.bound_built_s / self._seconds
        if not self._bounded and (share >= 1 - max(BOUND, built) or (share >= LEAST_SEARCHED and idle >= IDLE_BOUND)):
            self.bound()
        elif not self._planned and idle >= IDLE:
            self._plans()
        elif self._width and self._planned and self._waves >= self._patience and idle >= IDLE * self._timed:
            self._neighbourhoods()

    def _plans(self) -> None:
        """Plans, in their share of the seconds; a better one starts the clock of `idle` anew."""
        if self._planned:
            return
        self._planned = True
        planner, seconds = self._planner, min(PLANS * self._seconds, self._problem.seconds_left)
        if planner.built_s > seconds / 2:
            self._width = 0
            planner.note(f"no time for plans, whose model takes {planner.built_s:.1g} s to build: tree search alone")
            return
        until = time.monotonic() + seconds
        for _ in range(self._rounds):
            if time.monotonic() >= until or not planner.round(until - time.monotonic()):
                break
        if not planner.rounds:
            self._width = 0

    def _neighbourhoods(self) -> None:
        """Parts of the best state chosen anew, unless the tree search still has its time after those before."""
        if self._timed and time.monotonic() < self._rested_at:
            return
        began, self._waves = time.monotonic(), 0
        if not self._planner.neighbourhoods(self._width, self._random):
            self._rested_at = time.monotonic() + REST * (time.monotonic() - began)
