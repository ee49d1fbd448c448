"""The parts of a search by integer programs, for optimizers to put together: bound, plans, neighbourhoods.

    bound           of the least costs
    plan            after a state that was simulated -> solve -> exact prices of the moves that it makes, solve anew
                    -> decisions -> priced by the cost model
    neighbourhoods  parts of the best state chosen anew, several at a time

The report says for each plan what it promised and what the program costs, by class of op (`rounds`), and where the
seconds went (`seconds_by_part`).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np

from autopart.base.errors import MeshError
from autopart.costmodel.compiled.simulator import Simulation, Simulator
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.pairwise import INTERRUPTED, PairwiseProblem, Solution, solve
from autopart.pairwise.anytime import load_kernels
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.jobs import Job, State
from autopart.search.ilp.bound import each_apart, lower_bound, why_no_bound
from autopart.search.ilp.by_class import plan_by_class, program_by_class
from autopart.search.ilp.decisive_moves import decisive_moves
from autopart.search.ilp.decode import Decisions, Wanted, Weights, decode
from autopart.search.ilp.held_bytes import Liveness
from autopart.search.ilp.incumbent import choice_of
from autopart.search.ilp.lowered_moves import exact_jobs, least_jobs
from autopart.search.ilp.neighbourhood import Neighbourhood, grown, model_of, restricted
from autopart.search.ilp.sharding_model import Model, PlanCosts
from autopart.search.ilp.shared_moves import share_moves
from autopart.search.problem import Problem

FEW_OPS = 400
"""Of programs of at most so many ops the bound is about each op by itself, not about layers alike."""

REPRICED = 3
"""How often moves that a solved plan uses are priced exactly and the plan is solved anew, at most."""

PEAKS = 4
"""Of the states that plans were made beside, so many of the last have their peaks in the memory of the next plan."""

PLAN_GAP = 2e-3
"""A plan is solved until it is within this share of the best: programs differ from their plans by more."""

CLOSE = 0.05
"""A plan and its program that differ by less than this share need no further round."""

MODELLED_PER_S, BY_AXIS = 25_000, 4.0
"""Ops and values a second of which a model is built, priced and compared with a state, without deadline, over two axes;
each axis more makes it so many times as long, as values have more labels."""

BUILT_PER_S = 20_000
"""Ops and values a second of which the problem about every op is built and reduced, which no deadline interrupts."""

READ_PER_S = 2_000_000
"""Prices on edges a second of which a problem is made and reduced, without deadline: three axes have many labels."""

SOLVED_SHARE = 0.5
"""Of a plan's seconds the solver takes so many at most, half of what it has each time; the rest makes it decisions."""

PRICED_AT_A_TIME = 8
"""Types of value whose moves the workers price before the clock is looked at again."""

SHARE, FEWEST, MOST = 0.2, 12, 200
"""Of the nodes, how many a neighbourhood has; and at least and at most so many."""


class Planner:
    """One search's model, what was simulated, and the notes for the report; see the module.

    Raises `MeshError` where the mesh names no device to price with.
    """

    def __init__(self, problem: Problem, *, grouped: bool, seconds: float):
        self.problem, self._grouped, self._seconds = problem, grouped, seconds
        mesh = problem.task.partitioning.mesh
        if mesh.device is None:
            raise MeshError(
                f"nothing to plan by: the mesh {mesh} names no device",
                why="the integer program's costs are the simulator's",
                hint='ap.Mesh({...}, device="tpu_v3"), or another optimizer',
            )
        self._simulator = Simulator.of(problem.task.space.program, mesh)
        self._tried: set[Decisions] = set()
        self._runs: list[Simulation] = []
        self._simulated_of: State | None = None
        self.notes: list[str] = []
        self.rounds: list[dict[str, Any]] = []
        self.seconds_by_part: dict[str, float] = {}
        problem.notes.update(rounds=self.rounds, notes=self.notes, seconds_by_part=self.seconds_by_part)

    @functools.cached_property
    def model(self) -> Model:
        """The search's model, priced; built when it is first asked for."""
        return self._model(grouped=self._grouped)

    @property
    def built_s(self) -> float:
        """Seconds that the model will take to build, about; 0 once it is."""
        program, more_axes = self.problem.task.space.program, max(0, len(self.problem.task.space.axes) - 2)
        rate = MODELLED_PER_S / BY_AXIS**more_axes
        return 0.0 if "model" in vars(self) else (program.op_count + program.value_count) / rate

    @property
    def bound_built_s(self) -> float:
        """Seconds until a bound about every op is built and reduced, about."""
        program = self.problem.task.space.program
        return self.built_s + (program.op_count + program.value_count) / BUILT_PER_S

    @functools.cached_property
    def _edge_prices(self) -> np.ndarray:
        """int64[moves]: how many prices each move has between the strategies of its ends; known without prices."""
        with self._timed("build"):
            return _edge_prices(model_of(self.problem.task, grouped=self._grouped))

    def _model(self, *, grouped: bool) -> Model:
        with self._timed("build"):
            model = model_of(self.problem.task, grouped=grouped)
            jobs = model.jobs()
            return model.priced(jobs, self.problem.ask(jobs))

    @contextlib.contextmanager
    def _timed(self, part: str) -> Generator[None, None, None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds_by_part[part] = self.seconds_by_part.get(part, 0.0) + time.monotonic() - began

    # ---- the bound

    def bound(self, seconds: float) -> None:
        """Gives the problem its lower bound, in so many seconds, or the report the reason why there is none."""
        problem, objective = self.problem, self.problem.task.objective
        if why := why_no_bound(problem.task):
            problem.notes["no_bound"] = why
            return
        assert isinstance(objective, StepSeconds)
        until = time.monotonic() + seconds
        unpriced = model_of(problem.task, grouped=self._grouped)
        program, read_s = unpriced.nodes.start.program, float(self._edge_prices[unpriced.flow.kind].sum()) / READ_PER_S
        built_s, seconds = max((program.op_count + program.value_count) / BUILT_PER_S, read_s), 2 * self._seconds
        if built_s > min(seconds, until - time.monotonic()):
            self.note(f"no time for a bound about moves, which takes {built_s:.1g} s to build: each op by itself")
            with self._timed("bound"):
                problem.lower_bound = unpriced.least_share * each_apart(unpriced)
            return
        few = program.op_count <= FEW_OPS
        model = self._model(grouped=False) if few and self._grouped else self.model
        with self._timed("bound"):
            problem.lower_bound = model.least_share * each_apart(model)
            load_kernels()
            began = time.monotonic()
            seconds = min(seconds, until - began)
            self._raise_prices(model, min(seconds / 2, seconds - built_s))
            left = max(0.0, seconds - (time.monotonic() - began))
            found = lower_bound(model, objective, left)
        problem.lower_bound = max(model.least_share * found.score, problem.lower_bound)
        self.note(*found.notes)

    def _raise_prices(self, model: Model, seconds: float) -> None:
        """Prices the moves that decide the bound as lowerings plan them, and shares moves among uses by these prices,
        until none of them is new."""
        deadline, table, fresh = time.monotonic() + seconds, model.table, True
        while fresh:
            fresh = False
            while time.monotonic() < deadline and (jobs := least_jobs(decisive_moves(model))):
                fresh = True
                for first in range(0, len(jobs), PRICED_AT_A_TIME):
                    if time.monotonic() > deadline:
                        return
                    wave = jobs[first : first + PRICED_AT_A_TIME]
                    table.learn_least(wave, self.problem.ask(wave))
            if fresh and time.monotonic() < deadline:
                share_moves(model, deadline - time.monotonic())

    # ---- plans

    def round(self, seconds: float) -> bool:
        """Plans after the best state, decodes and prices, in about so many seconds; True if another may find more."""
        until, read_s = time.monotonic() + seconds, float(self._edge_prices.sum()) / READ_PER_S
        solver_s = SOLVED_SHARE * (until - time.monotonic())
        if read_s > solver_s:
            self.note(f"no time for a plan, whose prices take {read_s:.1g} s to read")
            return False
        problem, model = self.problem, self.model
        costs, held, begin = self._beside_best()
        solver_s = SOLVED_SHARE * (until - time.monotonic())
        planned, choice = self._plan(costs, held, begin, solver_s)
        if choice is None:
            return False
        with self._timed("decode"):
            weights = Weights.of(model.nodes, planned)
            decisions = decode(problem.task, Wanted.of(model.nodes, choice), weights, until - time.monotonic())
        if decisions in self._tried:
            return False
        self._tried.add(decisions)
        before = problem.best
        ((found,),) = problem.run([Job(decisions)])
        plan_s = planned.cost_of(choice)
        self.rounds.append(
            {
                "plan_s": plan_s,
                "program_s": found.cost.step_s,
                "decisions": len(decisions),
                "plan_by_class": plan_by_class(model, costs, choice),
                "program_by_class": program_by_class(model, self._simulated(found)),
            }
        )
        differs = abs(plan_s - found.cost.step_s) > CLOSE * found.cost.step_s
        return problem.best is not before or (differs and len(self.rounds) == 1)

    def _beside_best(self) -> tuple[PlanCosts, Liveness, np.ndarray]:
        """(costs beside the best state, memory at the peaks seen, the best state as a choice)."""
        best = self.problem.best
        with self._timed("costs"):
            if best is not self._simulated_of:
                self._runs = [*self._runs[1 - PEAKS :], self._simulated(best)]
                self._simulated_of = best
            run, nodes = self._runs[-1], self.model.nodes
            return self.model.plan_costs(run), Liveness.of_peaks(nodes, self._runs), choice_of(nodes, run.local)

    def _plan(
        self, costs: PlanCosts, held: Liveness, begin: np.ndarray, seconds: float
    ) -> tuple[PairwiseProblem, list[int] | None]:
        """The problem and its solution, whose moves are priced exactly; solved anew while they were not."""
        planned, choice = self.model.problem_of(costs, held), None
        deadline = time.monotonic() + min(self._seconds, seconds)
        for _ in range(REPRICED + 1):
            with self._timed("solve"):
                solved = self._solved(planned, begin, (deadline - time.monotonic()) / 2)
            if solved.choice is None:
                return planned, None
            found: list[int] = solved.choice.tolist()
            choice = found
            if not self._price_exactly(costs, found):
                break
            planned = self.model.problem_of(costs, held)
        return planned, choice

    def _price_exactly(self, costs: PlanCosts, choice: list[int]) -> bool:
        """Asks for the prices of a choice's moves; True if some were not exact before."""
        table = self.model.table
        with self._timed("prices"):
            jobs = exact_jobs(pair for pair in costs.flow.taken(choice) if pair not in table.exact)
            if jobs:
                table.learn(jobs, self.problem.ask(jobs))
        return bool(jobs)

    def _solved(self, planned: PairwiseProblem, begin: np.ndarray, seconds: float) -> Solution:
        """The plan within memory; where there is none, the plan in which each byte has its price."""
        solved = self._try(planned, begin, seconds)
        if solved.choice is None and planned.usage_limit is not None:
            objective, step_s = self.problem.task.objective, self.problem.best.cost.step_s
            penalty = objective.penalty if isinstance(objective, StepSeconds) else StepSeconds().penalty
            priced = planned.cost + penalty * step_s / planned.usage_limit * planned.usage
            solved = self._try(replace(planned, cost=priced, usage_limit=None), begin, seconds)
        return solved

    def _try(self, planned: PairwiseProblem, begin: np.ndarray, seconds: float) -> Solution:
        start, seed = self._legal(planned, begin), self.problem.seed
        solved = solve(planned, seconds=max(0.0, seconds), start=start, seed=seed, gap=PLAN_GAP)
        self.note(*solved.notes)
        return solved

    def note(self, *notes: str) -> None:
        """Keeps what a solver says, once; raises `KeyboardInterrupt` where Ctrl-C ended it."""
        self.notes += [note for note in notes if note not in self.notes]
        if INTERRUPTED in notes:
            raise KeyboardInterrupt

    def _legal(self, planned: PairwiseProblem, begin: np.ndarray) -> np.ndarray | None:
        """The best state as a choice for a problem, which has nodes for other memory behind; None if it is none."""
        start = np.concatenate([begin, np.zeros(planned.nodes - len(begin), np.int64)])
        return start if planned.fits(start) and np.isfinite(planned.cost_of(start)) else None

    # ---- neighbourhoods

    def neighbourhoods(self, width: int, random: np.random.Generator) -> bool:
        """Chooses `width` parts of the best state anew and prices what comes of it; True if one is better."""
        problem, jobs = self.problem, self.neighbourhood_jobs(width, random)
        with self._timed("neighbourhoods"):
            found = [decisions for decisions in problem.ask(jobs) if decisions]
        fresh = [decisions for decisions in dict.fromkeys(found) if decisions not in self._tried]
        self._tried.update(fresh)
        before = problem.best
        problem.run([Job(decisions) for decisions in fresh])
        return problem.best is not before

    def neighbourhood_jobs(self, width: int, random: np.random.Generator) -> list[Neighbourhood]:
        """`width` parts of the best state, to be chosen anew."""
        nodes = self.model.nodes
        costs, held, begin = self._beside_best()
        planned = self.model.problem_of(costs, held)
        if self._price_exactly(costs, begin.tolist()):
            planned = self.model.problem_of(costs, held)
        choice = np.concatenate([begin, np.zeros(planned.nodes - len(begin), np.int64)])
        weights, most = Weights.of(nodes, planned), min(MOST, max(FEWEST, int(SHARE * nodes.count)))
        jobs: list[Neighbourhood] = []
        for _ in range(width):
            free = grown(planned, int(random.integers(nodes.count)), most, random)
            part, seed = restricted(planned, choice, free), int(random.integers(2**31))
            jobs.append(Neighbourhood(part, choice, free, weights, self._grouped, seed))
        return jobs

    def _simulated(self, state: State) -> Simulation:
        """The simulator's run of a state."""
        task = self.problem.task
        partitioning = task.partitioning.copy()
        for decision in state.decisions:
            task.space.apply(partitioning, decision)
        return self._simulator.run(lower_for_device(partitioning, task.options))


def _edge_prices(model: Model) -> np.ndarray:
    """int64[moves]: how many prices each move has between the strategies of its ends."""
    nodes = model.nodes
    pairs = zip(nodes.strategies, nodes.labels, strict=True)
    count = [len(labels) if options is None else options.count for options, labels in pairs]
    return np.array([count[move.maker] * count[move.reader] for move in model.flow.moves], np.int64)
