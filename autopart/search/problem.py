"""What an optimizer sees: the starting state, a way to cost others in waves, and the best so far.

problem.baselines                              ->  the named schedules, costed before the optimizer begins
problem.run([Job((d,)) for d in first_wave])   ->  states, in the order of the jobs
problem.best                                   ->  the best state yet; it survives whatever happens to the optimizer
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from autopart.search.baselines import ByAxis, cost_baselines
from autopart.search.budget import BudgetMeter, BudgetSpent
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import Job, Question, Result, State, states_of_lost
from autopart.search.execution.executor import Lost, Session, WorkerError
from autopart.search.space.decisions import Decision
from autopart.search.space.several_axes import Combined

Answer = TypeVar("Answer")

Observer = Callable[["Problem", State, bool], None]
"""Called for every evaluation, with whether it is the best yet."""

Recall = Callable[[Job], Result | None]
"""A job's result from earlier records, if it is there."""


class Problem:
    """One search: a task, its workers, its budget and its seed.

    task            program, mesh, decision space, cost model: for optimizers that look inside, such as an ILP
    start           the starting state, costed
    best            the best state yet, by `cost.rank`
    evaluations     states costed so far
    broken          what a worker, the compiler or the cost model raised, if any did: not the optimizer's doing
    lost            (job, why) of those that no worker could finish; they count as states that cost more than any other
    baselines       (name, state) of schedules that were costed before the optimizer began, in that order
    by_axes         the best state of those that decide about the same mesh axes
    ahead           the best state, and the best of those that differ from it
    notes           plain values that the optimizer adds to the report
    lower_bound     no state that the search may reach scores less, where the optimizer knows; else None
    after_wave      called after each wave that the optimizer runs, where an optimizer does something in between
    """

    def __init__(
        self,
        task: SearchTask,
        session: Session,
        meter: BudgetMeter,
        seed: int,
        observe: Observer | None = None,
        recall: Recall | None = None,
        remember: Callable[[Job, Result], None] | None = None,
    ):
        self.task, self.seed = task, seed
        self._session, self._meter = session, meter
        self._observe, self._recall, self._remember = observe, recall, remember
        self.history: list[tuple[int, float]] = []
        self.broken: Exception | None = None
        self.lost: list[tuple[Job, str]] = []
        self.baselines: list[tuple[str, State]] = []
        self.by_axes: dict[frozenset[str], State] = {}
        self.notes: dict[str, Any] = {}
        self.lower_bound: float | None = None
        self.after_wave: Callable[[], None] | None = None
        self.start = self._first()
        self._began = time.monotonic()
        meter.begin()
        self.best = self.start
        self.ahead = [self.start]
        self.recalled = 0

    @property
    def evaluations(self) -> int:
        """States costed so far."""
        return self._meter.evaluations

    @property
    def evaluations_left(self) -> float:
        """States that may still be costed; infinite where only seconds count."""
        return self._meter.evaluations_left

    @property
    def seeds(self) -> list[tuple[str, tuple[Decision, ...]]]:
        """(name, decisions) of the baselines, the best first: where an optimizer may start."""
        ranked = sorted(self.baselines, key=lambda row: row[1].cost.rank)
        return [(name, state.decisions) for name, state in ranked]

    def cost_baselines(self, named: ByAxis) -> None:
        """Costs the schedules that were given, then the named ones (`baselines.py`): an evaluation each, no seconds.

        Raises `BudgetSpent` where there are fewer evaluations than schedules, after the likeliest have been costed.
        """
        self._meter.hold()
        try:
            given = [Combined.given(f"given {n}", seed) for n, seed in enumerate(self.task.space.seeds, 1)]
            self._cost_named(given)
            cost_baselines(named, self._cost_named, self.task.memory_bytes)
        finally:
            self._meter.begin()

    def _cost_named(self, wave: Sequence[Combined]) -> list[State]:
        results, spent = self._run([Job(schedule.decisions) for schedule in wave])
        states = [result[-1] for result in results if result]
        self.baselines += zip((schedule.label for schedule in wave), states, strict=False)
        if spent:
            raise BudgetSpent
        return states

    @property
    def share_spent(self) -> float:
        """The share of the budget that is spent, 0 to 1."""
        return self._meter.share

    @property
    def seconds_share(self) -> float:
        """The share of the budget's seconds that is spent, 0 to 1; 0 where only evaluations count."""
        return self._meter.seconds_share

    @property
    def evaluations_per_s(self) -> float:
        """States costed per second since the workers were ready."""
        return self._meter.evaluations / max(1e-9, self.seconds)

    @property
    def seconds(self) -> float:
        """Seconds since the starting state was costed."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float:
        """Seconds that the budget still has; infinite where only evaluations count."""
        return max(0.0, self._meter.deadline - time.monotonic())

    def ask(self, questions: Sequence[Question[Answer]]) -> list[Answer]:
        """What workers answer, in the order of the questions; no evaluations. Raises `BudgetSpent` at the deadline."""
        answers: dict[int, Answer] = {}
        try:
            for index, answer in self._session.run(questions, self._meter.deadline):
                if isinstance(answer, Lost):
                    raise WorkerError("a worker has no answer", why=answer.why)
                answers[index] = answer
        except Exception as error:
            self.broken = error
            raise
        if len(answers) < len(questions):
            raise BudgetSpent
        return [answers[index] for index in range(len(questions))]

    def run(self, jobs: Sequence[Job]) -> list[Result]:
        """Costs a wave. Raises `BudgetSpent` once the budget is, after what still fitted into it has been noted.

        Where only part of the wave fits, its first jobs run, the last of them as far as it fits: what a search costs
        with a smaller budget is what it costs first with a larger one.
        """
        results, spent = self._run(jobs)
        if spent:
            raise BudgetSpent
        if self.after_wave is not None:
            self.after_wave()
        return [r for r in results if r is not None]

    def _run(self, jobs: Sequence[Job]) -> tuple[list[Result | None], bool]:
        """The results of the jobs that fit into the budget, None where it ended first; whether it is spent.

        A rollout may end early, so what is left of the budget is known only after those that fit for certain have run.
        """
        results: list[Result | None] = []
        while len(results) < len(jobs) and None not in results and self.evaluations_left > 0:
            results += self._costed(self._fitting(jobs[len(results) :]))
        return results, len(results) < len(jobs) or None in results or self._meter.spent

    def _fitting(self, jobs: Sequence[Job]) -> list[Job]:
        """The first jobs, as many as fit into the budget whatever their rollouts do; else as much of one as fits."""
        left, asked = self.evaluations_left, 0
        for place, job in enumerate(jobs):
            asked += job.max_evaluations
            if asked > left:
                return list(jobs[:place]) or [job.within(int(left))]
        return list(jobs)

    def _costed(self, jobs: Sequence[Job]) -> list[Result | None]:
        """The results of jobs, None where the deadline came first."""
        results: list[Result | None] = [self._recall(job) if self._recall else None for job in jobs]
        self.recalled += sum(r is not None for r in results)
        missing = [i for i, r in enumerate(results) if r is None]
        missing.sort(key=lambda i: jobs[i].decisions)  # neighbours share first decisions: workers go back less
        try:
            for index, result in self._session.run([jobs[i] for i in missing], self._meter.deadline):
                job = jobs[missing[index]]
                if isinstance(result, Lost):
                    self.lost.append((job, result.why))
                    results[missing[index]] = states_of_lost(job)
                    continue
                results[missing[index]] = result
                if self._remember:
                    self._remember(job, result)
        except Exception as error:
            self.broken = error
            raise
        finally:
            for result in results:
                self._note(result or ())
        return results

    def _note(self, result: Result) -> None:
        for state in result:
            self._meter.evaluations += 1
            is_best = state.cost.rank < self.best.cost.rank
            if is_best:
                self.best = state
                self.history.append((self._meter.evaluations, state.cost.score))
            self._rank(state)
            if self._observe:
                self._observe(self, state, is_best)

    def _rank(self, state: State) -> None:
        """Keeps what a report says of other states than the best."""
        axes = frozenset(d.axis for d in state.decisions if d.axis)
        if axes not in self.by_axes or state.cost.rank < self.by_axes[axes].cost.rank:
            self.by_axes[axes] = state
        if len(self.ahead) < 2 or state.cost.rank < self.ahead[-1].cost.rank:
            unlike = [s for s in self.ahead if s.key != state.key]
            same = [s for s in self.ahead if s.key == state.key]
            kept = min([state, *same], key=lambda s: s.cost.rank)
            self.ahead = sorted([*unlike, kept], key=lambda s: s.cost.rank)[:2]

    def _first(self) -> State:
        """The starting state; it is costed even where the budget is 0, and not counted."""
        [(_, result)] = self._session.run([Job(())], float("inf"))
        if isinstance(result, Lost):
            raise WorkerError("the starting state cannot be costed", why=result.why)
        return result[0]
