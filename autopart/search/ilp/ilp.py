"""`ap.ILP`: the sharding problem as an integer program, solved, decoded into decisions, and priced anew.

    bound       of the least costs: before anything is tried
    round       plan after the best state, at first the best baseline -> solve -> decisions -> priced by the cost model;
                again, after what was found
    refinement  neighbours of the best state, as other optimizers refine theirs

The report says for each round what the plan promised and what the program costs (`rounds`), and where the seconds went
(`seconds_by_part`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from autopart.core.arguments import FLAG, check_fields, number, whole
from autopart.core.errors import MeshError
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.costmodel.simulator.simulator import Simulation, Simulator
from autopart.search.cost import StepSeconds
from autopart.search.ilp.bound import grouped_lower_bound, lower_bound, why_no_bound
from autopart.search.ilp.decode import Decisions, Wanted, Weights, decode
from autopart.search.ilp.held_bytes import Liveness
from autopart.search.ilp.prices import exact_jobs
from autopart.search.ilp.sharding_model import Model, PlanCosts
from autopart.search.ilp.solver import PairwiseProblem, Solution, solve
from autopart.search.jobs import Job, State
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.optimizers.refine import refine
from autopart.search.problem import Problem

FEW_OPS = 400
"""Of programs of at most so many ops the bound is about each op, and solved to the end."""

REPRICED = 3
"""How often moves that a solved plan uses are priced exactly and the plan is solved anew, at most."""

CLOSE = 0.05
"""A plan and its program that differ by less than this share need no further round."""


@register_optimizer("ilp")
@dataclass(frozen=True)
class ILP:
    """An integer program over tile mappings and layouts; see `autopart.search.ilp` for the formulation.

    grouped    repeated layers are planned alike, as one; the bound is about all states either way
    rounds     plans at most, each after the state that the one before led to
    seconds    of a solver at a time, at most
    refined    end with neighbours of the best state, while the budget lasts
    """

    grouped: bool = True
    rounds: int = 3
    seconds: float = 60.0
    refined: bool = True

    def __post_init__(self) -> None:
        check_fields(self, grouped=FLAG, rounds=whole(1), seconds=number(0), refined=FLAG)

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`. Raises `MeshError` where the mesh names no device to price with."""
        _Search(problem, self).run()


class _Search:
    """One search: the model, what was simulated, and the notes for the report."""

    def __init__(self, problem: Problem, settings: ILP):
        self.problem, self.settings = problem, settings
        mesh = problem.task.partitioning.mesh
        if mesh.device is None:
            raise MeshError(
                f"nothing to plan by: the mesh {mesh} names no device",
                why="the integer program's costs are the simulator's",
                hint='ap.Mesh({...}, device="tpu_v3"), or another optimizer',
            )
        self.simulator = Simulator.of(problem.task.space.program, mesh)
        self.notes: list[str] = []
        self.rounds: list[dict[str, Any]] = []
        self._tried: set[Decisions] = set()
        self.seconds_by_part: dict[str, float] = {}
        problem.notes.update(rounds=self.rounds, notes=self.notes, seconds_by_part=self.seconds_by_part)

    def run(self) -> None:
        """See the module."""
        problem, settings = self.problem, self.settings
        model = self._model(grouped=settings.grouped)
        self._bound(model)
        runs: list[Simulation] = []
        for _ in range(settings.rounds):
            runs.append(self._simulated(problem.best))
            if not self._round(model, runs):
                break
        if settings.refined:
            refine(problem, problem.best)

    def _model(self, *, grouped: bool) -> Model:
        with self._timed("build"):
            model = Model.of(self.problem.task, grouped=grouped)
            jobs = model.jobs()
            return model.priced(jobs, self.problem.ask(jobs))

    @contextlib.contextmanager
    def _timed(self, part: str) -> Generator[None, None, None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds_by_part[part] = self.seconds_by_part.get(part, 0.0) + time.monotonic() - began

    def _bound(self, model: Model) -> None:
        problem, objective = self.problem, self.problem.task.objective
        if why := why_no_bound(problem.task):
            problem.notes["no_bound"] = why
            return
        assert isinstance(objective, StepSeconds)
        exact = model.nodes.start.program.op_count <= FEW_OPS
        if exact and self.settings.grouped:
            model = self._model(grouped=False)
        with self._timed("bound"):
            found = (lower_bound if exact else grouped_lower_bound)(model, objective, self._solver_seconds())
        problem.lower_bound = found.score
        self.notes += found.notes

    def _round(self, model: Model, runs: list[Simulation]) -> bool:
        """Plans after the last of the simulated states, decodes and prices; True if another round may find more."""
        problem = self.problem
        with self._timed("costs"):
            costs, held = model.plan_costs(runs[-1]), Liveness.of_peaks(model.nodes, runs)
        planned, choice = self._plan(model, costs, held)
        if choice is None:
            return False
        with self._timed("decode"):
            weights = Weights.of(model.nodes, planned)
            decisions = decode(problem.task, Wanted.of(model.nodes, choice), weights, problem.seconds_left)
        if decisions in self._tried:
            return False
        self._tried.add(decisions)
        before = problem.best
        with self._timed("price"):
            ((found,),) = problem.run([Job(decisions)])
        plan_s = planned.cost_of(choice)
        self.rounds.append({"plan_s": plan_s, "program_s": found.cost.step_s, "decisions": len(decisions)})
        differs = abs(plan_s - found.cost.step_s) > CLOSE * found.cost.step_s
        return problem.best is not before or (differs and len(self.rounds) == 1)

    def _plan(self, model: Model, costs: PlanCosts, held: Liveness) -> tuple[PairwiseProblem, list[int] | None]:
        """The problem and its solution, whose moves are priced exactly; solved anew while they were not."""
        planned, choice = model.problem_of(costs, held), None
        for _ in range(REPRICED + 1):
            with self._timed("solve"):
                planned = model.problem_of(costs, held)
                solved = self._solved(planned)
            if solved.choice is None:
                return planned, None
            choice: list[int] = solved.choice.tolist()
            unknown = [pair for pair in costs.flow.taken(choice) if pair not in model.table.exact]
            if not unknown:
                break
            with self._timed("build"):
                jobs = exact_jobs(unknown)
                model.table.learn(jobs, self.problem.ask(jobs))
        return planned, choice

    def _solved(self, planned: PairwiseProblem) -> Solution:
        """The plan within memory; where there is none, the plan in which each byte has its price."""
        solved = solve(planned, seconds=self._solver_seconds(), seed=self.problem.seed)
        if solved.choice is None and planned.usage_limit is not None:
            objective, step_s = self.problem.task.objective, self.problem.best.cost.step_s
            penalty = objective.penalty if isinstance(objective, StepSeconds) else StepSeconds().penalty
            priced = planned.cost + penalty * step_s / planned.usage_limit * planned.usage
            planned = replace(planned, cost=priced, usage_limit=None)
            solved = solve(planned, seconds=self._solver_seconds(), seed=self.problem.seed)
        self.notes += solved.notes
        return solved

    def _solver_seconds(self) -> float:
        return min(self.settings.seconds, self.problem.seconds_left)

    def _simulated(self, state: State) -> Simulation:
        """The simulator's run of a state."""
        task = self.problem.task
        partitioning = task.partitioning.copy()
        for decision in state.decisions:
            task.space.apply(partitioning, decision)
        return self.simulator.run(lower_for_device(partitioning, task.options))
