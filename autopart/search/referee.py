"""A second opinion at the end of a search: the best states that it found are costed again, by a slower cost model.

    found 1     56 ms by the simulator     96 ms by the compiler
    found 2     58 ms                      84 ms                      taken
    BP+Z3       83 ms                      83 ms ...                  costed too: a referee may think more of it

A search goes where its cost model errs in its favour, so its best states are the ones to look at twice. The referee
costs

- the `finalists` best states whose estimates differ,
- the schedules in `seeds=[...]`,
- as many others as finalists, the best of the named schedules and the starting state.

A decoder of 12 layers has 26 named ones within twice the best, and a compiler takes 15 seconds of each.

It runs in the process of the search, one state at a time, after the workers have ended: executors play no part in it.
What it raises costs that state. Its seconds are not part of the search's budget. Ctrl-C ends it with the best so far.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autopart.base.quoting import one_line
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.evaluation.cost import Cost, StateCosts
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.evaluation.jobs import Job, State
from autopart.search.problem import Problem
from autopart.search.progress import RefereeLine
from autopart.spmd.device_local import DeviceLocal

CONSIDERED = 16
"""States kept per finalist asked for: many differ in nothing that their program shows."""


class Leading:
    """An observer of a problem that keeps the best states with different keys, the best first."""

    def __init__(self, count: int):
        self._count, self._keys = count, set[int]()
        self._states: list[State] = []

    def __call__(self, problem: Problem, state: State, is_best: bool) -> None:
        """Called for every evaluation."""
        if self._count == 0 or state.key in self._keys or not math.isfinite(state.cost.score):
            return
        if len(self._states) == self._count and state.cost.rank >= self._states[-1].cost.rank:
            return
        self._keys.add(state.key)
        bisect.insort(self._states, state, key=lambda s: s.cost.rank)
        for dropped in self._states[self._count :]:
            self._keys.discard(dropped.key)
        del self._states[self._count :]

    @property
    def states(self) -> list[State]:
        """The states, the best first."""
        return list(self._states)


@dataclass
class Finalist:
    """A state that the referee costs.

    labels   what it is: "found 1", "given 1", "BP+Z3(batch)", "start"; several where their programs are the same
    cost     the referee's; None where it raised, and `error` says what
    """

    labels: list[str]
    state: State
    cost: Cost | None = None
    error: str = ""
    seconds: float = 0.0

    def plain(self, task: SearchTask) -> dict[str, Any]:
        """As reports have it: the estimate of the search beside the referee's."""
        return {
            "labels": self.labels, "decisions": [task.space.describe(d) for d in self.state.decisions],
            "estimate": plain_cost(self.state.cost), "referee": plain_cost(self.cost) if self.cost else None,
            "error": self.error, "seconds": self.seconds,
        }  # fmt: skip


@dataclass
class Verdict:
    """What the referee said: `best` is the state to take, the search's own best where the referee costed none."""

    referee: str
    best: State
    finalists: list[Finalist] = field(default_factory=list[Finalist])
    left_out: list[str] = field(default_factory=list[str])
    interrupted: bool = False

    @property
    def cost(self) -> Cost | None:
        """What the referee says of the best; None where it costed no state."""
        return next((f.cost for f in self.finalists if f.state is self.best), None)

    def report(self, task: SearchTask) -> dict[str, Any]:
        """Plain values for the search's report."""
        chosen = next((f.labels[0] for f in self.finalists if f.state is self.best and f.cost), None)
        return {
            "referee": self.referee, "finalists": [f.plain(task) for f in self.finalists],
            "left_out": self.left_out, "chosen": chosen,
        }  # fmt: skip


def judge(
    task: SearchTask, problem: Problem, leading: Leading, referee: CostModel, name: str, count: int, shown: bool = False
) -> Verdict:
    """Lets the referee, called `name`, cost the finalists; the task's partitioning is left as it was."""
    evaluator = Evaluator(task)
    verdict = Verdict(one_line(name), problem.best, *_finalists(evaluator, task, problem, leading, count))
    price = StateCosts(task.partitioning.program, task.partitioning.mesh, referee, task.objective)
    line = RefereeLine(verdict.referee, len(verdict.finalists)) if shown else None
    try:
        for number, finalist in enumerate(verdict.finalists):
            if line:
                line.begin(number, finalist.labels[0], finalist.state.cost.step_s)
            started = time.monotonic()
            try:
                finalist.cost = price(_lowered(evaluator, task, finalist.state), finalist.state.cost.actions)
            except Exception as error:
                finalist.error = f"{type(error).__name__}: {error}"
            finalist.seconds = time.monotonic() - started
            if line:
                line.end(finalist.cost.step_s if finalist.cost else None, finalist.error)
    except KeyboardInterrupt:
        verdict.interrupted = True
    costed = [(f.cost.rank, number) for number, f in enumerate(verdict.finalists) if f.cost]
    if costed:
        verdict.best = verdict.finalists[min(costed)[1]].state
    return verdict


def plain_cost(cost: Cost) -> dict[str, Any]:
    """A cost as plain values."""
    return {
        "step_s": cost.step_s,
        "peak_bytes": cost.peak_bytes,
        "fits": cost.fits,
        "score": cost.score,
        "actions": cost.actions,
    }


def _finalists(
    evaluator: Evaluator, task: SearchTask, problem: Problem, leading: Leading, count: int
) -> tuple[list[Finalist], list[str]]:
    """States of different estimates, the best first, and labels of those left out.

    Programs of one estimate are one program, or one up to the order of its axes: the referee would be asked twice.
    """
    found: dict[tuple[float, float], Finalist] = {}
    named, left_out = 0, list[str]()
    for label, state in _candidates(evaluator, task, problem, leading):
        cost = state.cost
        estimate = (cost.step_s, cost.peak_bytes)
        if estimate in found:
            if label:
                found[estimate].labels.append(label)
        elif label and not label.startswith("given ") and named == count:
            left_out.append(label)
        elif label or len(found) < count:
            named += bool(label) and not label.startswith("given ")
            found[estimate] = Finalist([label or f"found {len(found) + 1}"], state)
    return sorted(found.values(), key=lambda f: f.state.cost.rank), left_out


def _candidates(
    evaluator: Evaluator, task: SearchTask, problem: Problem, leading: Leading
) -> Iterator[tuple[str, State]]:
    """(label, state): what was found, without a label, best first; then what bounds it, the named ones best first."""
    yield from (("", state) for state in leading.states)
    if not leading.states:
        yield "", problem.best
    for number, decisions in enumerate(task.space.seeds, 1):
        yield f"given {number}", evaluator.run(Job(decisions))[-1]
    yield from sorted([*problem.baselines, ("start", problem.start)], key=lambda labelled: labelled[1].cost.rank)


def _lowered(evaluator: Evaluator, task: SearchTask, state: State) -> DeviceLocal:
    """The device-local program of a state."""
    evaluator.actions(state.decisions)
    return lower_for_device(evaluator.partitioning, task.options)
