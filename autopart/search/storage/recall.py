"""Whether what a file says about a job or a search can be true of this program.

    {"decisions": [["tile_group", 1000000000, 0, "batch"]], ...}      the program has 52 groups: not believed
    {"cost": [NaN, 1e9, 0, 1, NaN], ...}                        no cost is NaN: not believed

Kernels index arrays by these numbers without looking, so nothing reaches one unchecked.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from autopart.base.errors import PartitionError
from autopart.base.user_line import warn
from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.jobs import Job, Result, State
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.storage.records import RecordWarning, job_text

REPORTED = {"optimizer", "seed", "stopped", "evaluations", "seconds", "decisions", "start", "best", "history"}
"""What the report of a search holds at least."""


class Recalled:
    """Results of earlier jobs; one that cannot be of this search is reported, the first time, and costed again."""

    def __init__(self, path: str | Path, found: dict[str, Result], space: DecisionSpace):
        self._path, self._found, self._space = path, found, space
        self._warned = False

    def __call__(self, job: Job) -> Result | None:
        """The job's result, if it is known and can be true."""
        result = self._found.get(job_text(job))
        if result is None:
            return None
        why = self._why_not(job, result)
        if why and not self._warned:
            self._warned = True
            warn(f"{self._path!s}: a result is ignored: {why}", RecordWarning)
        return None if why else result

    def _why_not(self, job: Job, result: Result) -> str:
        count = max(1, len(job.decisions)) if job.each else 1
        if not count <= len(result) <= count + job.rollout:
            return f"it has {len(result)} states for a job of {count} to {count + job.rollout}"
        for number, state in enumerate(result):
            length = number + 1 if job.each and job.decisions else len(job.decisions) + number
            if len(state.decisions) != length or state.decisions[: len(job.decisions)] != job.decisions[:length]:
                return "its states are of other decisions"
            if why := state_problem(state, self._space):
                return why
        return ""


def state_problem(state: State, space: DecisionSpace) -> str:
    """Why a state cannot be of this search; empty if it can."""
    cost = state.cost
    numbers = (cost.step_s, cost.peak_bytes, cost.excess, cost.actions)
    if any(math.isnan(n) or n < 0 for n in numbers) or math.isnan(cost.score):
        return f"no state costs {numbers}, {cost.score}"
    if not 0 <= state.key < 2**64:
        return "its key is no number of 64 bits"
    if any(not (math.isfinite(o.prior) and o.prior >= 0) for o in state.options):
        return "a prior is no share"
    decisions = [*state.decisions, *(o.decision for o in state.options)]
    return next((f"{d} is about nothing in the program" for d in decisions if not _exists(d, space)), "")


def _exists(decision: Decision, space: DecisionSpace) -> bool:
    is_over_an_axis = decision.axis == "" or decision.axis in space.axes
    return is_over_an_axis and space.kind_of(decision).exists(space.facts, decision)


def search_problem(partitioning: Partitioning, actions: list[Action], report: dict[str, Any]) -> str:
    """Why a cached search cannot be of this program; empty if it can. Uses `partitioning` up: give it a copy."""
    missing = REPORTED - report.keys()
    if missing:
        return f"its report lacks {', '.join(sorted(missing))}"
    for name in ("start", "best"):
        cost = report[name]
        numbers = [cost.get(k) for k in ("step_s", "peak_bytes", "score")] if isinstance(cost, dict) else [None]
        if any(isinstance(n, bool) or not isinstance(n, (int, float)) or math.isnan(n) for n in numbers):
            return f'its report\'s "{name}" is {cost!r:.80}'
    judged = isinstance(report.get("referee"), dict)
    if report["best"].get("fits") is not True and not judged and not isinstance(report.get("does_not_fit"), list):
        return "its report says neither that the best fits nor what fills the memory"
    try:
        partitioning.apply_all(actions)
    except PartitionError as error:
        return error.what
    return ""
