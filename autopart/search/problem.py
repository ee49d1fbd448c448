"""What an optimizer sees: the starting state, a way to cost others in waves, and the best so far.

problem.run([Job((d,)) for d in first_wave])   ->  states, in the order of the jobs
problem.best                                   ->  the best state yet; it survives whatever happens to the optimizer
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from autopart.search.budget import BudgetMeter, BudgetSpent
from autopart.search.evaluator import SearchTask
from autopart.search.execution.executor import Lost, Session, WorkerError
from autopart.search.jobs import Job, Question, Result, State, states_of_lost
from autopart.search.space.decisions import Decision
from autopart.search.space.named_schedules import named_schedules

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
    notes           plain values that the optimizer adds to the report
    lower_bound     no state that the search may reach scores less, where the optimizer knows; else None
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
        self.notes: dict[str, Any] = {}
        self.lower_bound: float | None = None
        self.start = self._first()
        meter.begin()
        self.best = self.start
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
        """(label, decisions) of the schedules that a search may start from: those given, then the named ones."""
        space = self.task.space
        return [*(("given", sequence) for sequence in space.seeds), *named_schedules(space)]

    @property
    def share_spent(self) -> float:
        """The share of the budget that is spent, 0 to 1."""
        return self._meter.share

    @property
    def evaluations_per_s(self) -> float:
        """States costed per second since the workers were ready."""
        return self._meter.evaluations / max(1e-9, self._meter.seconds)

    @property
    def seconds(self) -> float:
        """Seconds since the starting state was costed."""
        return self._meter.seconds

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

        Where only part of the wave fits, its first jobs run.
        """
        left, asked = self._meter.evaluations_left, 0
        fitting: list[Job] = []
        for job in jobs:
            asked += job.max_evaluations
            if asked > left:
                break
            fitting.append(job)
        results: list[Result | None] = [self._recall(job) if self._recall else None for job in fitting]
        self.recalled += sum(r is not None for r in results)
        missing = [i for i, r in enumerate(results) if r is None]
        missing.sort(key=lambda i: fitting[i].decisions)  # neighbours share first decisions: workers go back less
        try:
            for index, result in self._session.run([fitting[i] for i in missing], self._meter.deadline):
                job = fitting[missing[index]]
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
        if len(fitting) < len(jobs) or None in results or self._meter.spent:
            raise BudgetSpent
        return [r for r in results if r is not None]

    def _note(self, result: Result) -> None:
        for state in result:
            self._meter.evaluations += 1
            is_best = state.cost.rank < self.best.cost.rank
            if is_best:
                self.best = state
                self.history.append((self._meter.evaluations, state.cost.score))
            if self._observe:
                self._observe(self, state, is_best)

    def _first(self) -> State:
        """The starting state; it is costed even where the budget is 0, and not counted."""
        [(_, result)] = self._session.run([Job(())], float("inf"))
        if isinstance(result, Lost):
            raise WorkerError("the starting state cannot be costed", why=result.why)
        return result[0]
