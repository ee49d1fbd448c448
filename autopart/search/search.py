"""A search from beginning to end: cache, records, workers, optimizer, and the actions of the best state.

    search(partitioning, Search(axes=("batch", "model"), optimizer=MCTS(), budget=Budget(1000)))
      ->  SearchResult(actions=[tile<...>, ..., propagate<batch>], report={...})

`partitioning` is where the search starts, and it is left as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopart.base.gc_pause import gc_paused
from autopart.base.units import bytes_text, seconds_text
from autopart.core.table.actions import Action, row_of
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.breakdown import top_buffers
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.cost_models import called_cost_model, cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.baselines import ByAxis
from autopart.search.budget import Budget, BudgetMeter, BudgetSpent
from autopart.search.comparison import compared
from autopart.search.evaluation.cost import Cost, Objective, StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import State
from autopart.search.execution.executor import Executor, Session, begun, executor_of
from autopart.search.interrupts import interrupts_kept
from autopart.search.merge_propagations import with_merged_propagations
from autopart.search.optimizers.optimizer import FindsBound, Optimizer, OptimizerError, optimizer_of
from autopart.search.problem import Observer, Problem
from autopart.search.progress import ProgressLine
from autopart.search.referee import CONSIDERED, Leading, Verdict, judge, plain_cost
from autopart.search.space.axis_symmetry import in_canonical_axes, symmetric_axes
from autopart.search.space.decision_space import DecisionSpace, registered_kinds
from autopart.search.space.named_schedules import registered_schedules
from autopart.search.storage import cache
from autopart.search.storage.recall import Recalled, search_problem
from autopart.search.storage.records import Recorder, read_records
from autopart.spmd.device_local import LoweringOptions

DEFAULT_BUDGET = Budget()
DEFAULT_OBJECTIVE = StepSeconds()
DEFAULT_FINALISTS = 4


@dataclass(frozen=True)
class Search:
    """Everything that says what to search for and how; see `ap.AutomaticPartition`, whose fields these are."""

    axes: tuple[str, ...]
    optimizer: str | Optimizer = "mcts"
    budget: Budget = DEFAULT_BUDGET
    seed: int = 0
    executor: str | Executor = "serial"
    objective: Objective = DEFAULT_OBJECTIVE
    cost_model: str | CostModel | None = None
    options: LoweringOptions = LoweringOptions()
    given: tuple[tuple[Action, ...], ...] = ()
    baselines: bool = True
    records: str | Path | None = None
    resume: str | Path | None = None
    cache: bool | str | Path = True
    progress: bool = False
    referee: str | CostModel | None = None
    finalists: int = DEFAULT_FINALISTS


@dataclass(frozen=True)
class SearchResult:
    """What a search found: the actions to take, the state they lead to, and plain values about how it went."""

    actions: tuple[Action, ...]
    report: dict[str, Any]
    best: State | None = None


def search(partitioning: Partitioning, wanted: Search) -> SearchResult:
    """Runs a search, or recalls it.

    Raises `MeshError` for an axis that is not in the mesh, or where there is nothing to price with; `UnknownNameError`
    for an unknown optimizer, executor or cost model; `OptimizerError` if the optimizer raises, with the best state
    until then; `ObjectiveError` if the objective does; `WorkerError` where workers cannot be started or keep dying.
    Ctrl-C ends it with the best so far; before the starting state is costed there is none, and `KeyboardInterrupt` is
    raised.
    """
    optimizer, executor = optimizer_of(wanted.optimizer), executor_of(wanted.executor)
    cost_model = called_cost_model(wanted.cost_model)
    wanted = dataclasses.replace(wanted, cost_model=cost_model, referee=cost_model_of(wanted.referee))
    for axis in wanted.axes:
        partitioning.mesh.index(axis)
    header = _header(partitioning, wanted)
    key = {**header, "optimizer": repr(optimizer), "budget": dataclasses.asdict(wanted.budget), "seed": wanted.seed}
    if wanted.referee is not None:
        key |= {"referee": _named(wanted.referee), "finalists": wanted.finalists}
    key["baselines"] = wanted.baselines
    key["named_schedules"] = {name: repr(schedule) for name, schedule in registered_schedules().items()}
    directory = _cache_directory(wanted)
    if directory is not None and (known := _from_cache(directory, key, partitioning)) is not None:
        return known
    with begun(executor) as start:
        found = _searched(_task(partitioning.copy(), wanted, cost_model), optimizer, start, wanted, header)
    whole = found.report["stopped"] in ("budget", "done") and not found.report["lost"] and not _unjudged(found.report)
    if directory is not None and whole and wanted.budget.seconds is None:
        cache.save(directory, key, list(found.actions), found.report)
    return found


def _task(own: Partitioning, wanted: Search, cost_model: CostModel | None) -> SearchTask:
    """The task of searching from `own`, a copy."""
    axes = [a for a in wanted.axes if own.mesh.shape[a] > 1]
    symmetric_to = symmetric_axes(own, axes) if cost_model is None else {}
    space = DecisionSpace.of(own, axes, symmetric_to=symmetric_to, given=wanted.given)
    return SearchTask(own, space, wanted.options, cost_model, wanted.objective)


def _from_cache(directory: Path, key: dict[str, Any], partitioning: Partitioning) -> SearchResult | None:
    """A cached result that can be of this program."""
    known = cache.load(directory, key)
    if known is None:
        return None
    actions, report = known
    why = search_problem(partitioning.copy(), actions, report)
    if why:
        cache.ignored(directory, key, why)
        return None
    return SearchResult(tuple(actions), {**report, "cached": True})


def _searched(
    task: SearchTask,
    optimizer: Optimizer,
    start: Callable[[SearchTask], Session],
    wanted: Search,
    header: dict[str, Any],
) -> SearchResult:
    line = ProgressLine(", ".join(wanted.axes)) if wanted.progress else None
    begins = wanted.records is not None and Path(wanted.records) == Path(wanted.resume or "")
    recalled = read_records(wanted.resume, header, begins) if wanted.resume is not None else {}
    recorder = Recorder(wanted.records, header) if wanted.records is not None else None
    began, start_up_s, problem, stopped, failure = time.monotonic(), 0.0, None, "interrupted", None
    referee = cost_model_of(wanted.referee)
    leading = Leading(CONSIDERED * wanted.finalists if referee else 0)
    session = start(task)
    try:
        nothing = 0 in (wanted.budget.evaluations, wanted.budget.seconds)
        named = None if nothing or not wanted.baselines else ByAxis.of(task.space)  # while workers start
        problem = Problem(
            task, session, BudgetMeter(wanted.budget), wanted.seed, _observers(line, leading),
            recall=Recalled(wanted.resume, recalled, task.space) if wanted.resume and recalled else None,
            remember=recorder,
        )  # fmt: skip
        start_up_s = time.monotonic() - began
        stopped = _cost_baselines(problem, named) if wanted.baselines else ""
        stopped, failure = _optimize(optimizer, problem, stopped)
        if line is not None:
            line.close(problem)
    except KeyboardInterrupt:
        if problem is None:
            raise
    finally:
        with interrupts_kept():
            session.close()
            if recorder is not None:
                recorder.close()
    if failure is not None:
        raise failure
    verdict = None
    if referee is not None and stopped != "interrupted":
        verdict = judge(task, problem, leading, referee, _named(referee), wanted.finalists, wanted.progress)
        stopped = "interrupted" if verdict.interrupted else stopped
    with interrupts_kept() as kept:
        found = _found(task, problem, optimizer, wanted, stopped, verdict)
    found.report["start_up_s"] = start_up_s
    if kept.count:
        found.report["stopped"] = "interrupted"
    return found


def _observers(*given: Observer | None) -> Observer:
    """One observer that calls those that are there."""
    observers = [observer for observer in given if observer is not None]

    def observe(problem: Problem, state: State, is_best: bool) -> None:
        for observer in observers:
            observer(problem, state, is_best)

    return observe


def _cost_baselines(problem: Problem, named: ByAxis | None) -> str:
    """Why the search stopped at the baselines; empty if it goes on. None are given where the budget is nothing."""
    if named is None:
        return "budget"
    try:
        with contextlib.nullcontext() if problem.task.cost_model else gc_paused():
            problem.cost_baselines(named)
    except BudgetSpent:
        return "budget"
    return ""


def _optimize(optimizer: Optimizer, problem: Problem, stopped: str) -> tuple[str, OptimizerError | None]:
    """Why the search stopped, and the error to raise if the optimizer did.

    Where the search `stopped` before the optimizer, that may still know a bound.
    """
    if problem.evaluations_left <= 0:
        stopped = "budget"
    if stopped and not isinstance(optimizer, FindsBound):
        return stopped, None
    try:
        with contextlib.nullcontext() if problem.task.cost_model else gc_paused():
            if isinstance(optimizer, FindsBound) and stopped:
                optimizer.bound_alone(problem)
            else:
                optimizer.search(problem)
    except BudgetSpent:
        return "budget", None
    except KeyboardInterrupt:
        return "interrupted", None
    except Exception as error:
        if error is problem.broken:
            raise
        best = problem.best
        took, held = seconds_text(best.cost.step_s), bytes_text(best.cost.peak_bytes)
        failure = OptimizerError(
            f"{optimizer!r} raised {error!r} after {problem.evaluations} evaluations",
            why=f"its best state until then takes {took} and {held}",
            hint="the state is this error's `best`; with records=..., resume=... goes on from what was costed",
        )
        failure.best = best
        failure.__cause__ = error
        return "failed", failure
    return stopped or "done", None


def _found(
    task: SearchTask, problem: Problem, optimizer: Optimizer, wanted: Search, stopped: str, verdict: Verdict | None
) -> SearchResult:
    """The result; leaves the task's partitioning in the best state."""
    best, partitioning = verdict.best if verdict else problem.best, task.partitioning
    comparison = compared(task, problem, best)
    decisions = in_canonical_axes(
        partitioning, best.decisions, lambda d: task.space.apply(partitioning, d), task.space.symmetric_to
    )
    start = partitioning.mark()
    parts = [task.space.apply(partitioning, decision) for decision in decisions]
    partitioning.undo(start)
    actions = with_merged_propagations(partitioning, parts)
    report = {
        "optimizer": repr(optimizer),
        "seed": wanted.seed,
        "stopped": stopped,
        "evaluations": problem.evaluations,
        "recalled": problem.recalled,
        "lost": [{"job": str(job), "why": why} for job, why in problem.lost],
        "seconds": problem.seconds,
        "evaluations_per_s": problem.evaluations_per_s,
        "decisions": [task.space.describe(d) for d in decisions],
        "start": plain_cost(problem.start.cost),
        "best": plain_cost(best.cost),
        "history": [list(h) for h in problem.history],
        "cached": False,
        **comparison,
        **problem.notes,
    }
    if problem.lower_bound is not None:
        report["lower_bound"] = problem.lower_bound
        report["gap"] = max(0.0, 1 - problem.lower_bound / max(best.cost.score, 1e-30))
    if (
        stopped == "budget"
        and problem.evaluations == 0
        and wanted.budget.evaluations != 0
        and wanted.budget.seconds != 0
    ):
        report["nothing_tried"] = (
            f"nothing was tried in {problem.seconds:.1f} s: the result is where the search started"
        )
    cost = best.cost
    if verdict is not None:
        report["referee"] = verdict.report(task)
        cost = verdict.cost or cost
    if not cost.fits:
        report["does_not_fit"] = _blocked_by(task, cost)
    return SearchResult(tuple(actions), report, best)


def _unjudged(report: dict[str, Any]) -> bool:
    """Whether the referee raised over a finalist: what it says another time may decide otherwise."""
    return any(finalist["error"] for finalist in report.get("referee", {}).get("finalists", ()))


def _blocked_by(task: SearchTask, cost: Cost) -> list[str]:
    """What fills the memory of a state that does not fit, in words."""
    least = bytes_text(cost.peak_bytes)
    lines = [f"nothing found fits: the least is {least}, {1 + cost.excess:.2f} x the device's memory"]
    if task.cost_model is None:
        partitioning = task.partitioning
        run = Simulator.of(partitioning.program, partitioning.mesh).run(lower_for_device(partitioning, task.options))
        for row in top_buffers(run, 5):
            lines.append(f"{bytes_text(row.bytes)}  {row.what}  {row.path}  {row.where}".rstrip())
    return lines


def _header(partitioning: Partitioning, wanted: Search) -> dict[str, Any]:
    """What the cost of a sequence of decisions depends on."""
    mesh = partitioning.mesh
    return {
        "autopart": cache.source_hash(),
        "program": partitioning.program.fingerprint,
        "mesh": mesh.shape,
        "device": mesh.device,
        "rates": mesh.device and repr(device(mesh.device)),
        "links": [list(pair) for pair in mesh.links],
        "start": f"{partitioning.fingerprint:016x}",
        "axes": list(wanted.axes),
        "kinds": {name: repr(kind) for name, kind in registered_kinds().items()},
        "given": [[row_of(a) for a in actions] for actions in wanted.given],
        "options": repr(wanted.options),
        "cost_model": _named(wanted.cost_model),
        "objective": _named(wanted.objective),
    }


def _named(thing: Any) -> str:
    """How a cost model or an objective is told from another: its fields, or the name of the function."""
    if dataclasses.is_dataclass(thing) or thing is None:
        return repr(thing)
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', repr(thing))}"


def _cache_directory(wanted: Search) -> Path | None:
    """None where nothing is to be cached, or a function prices whose code the key cannot hold."""
    own = [t for t in (wanted.cost_model, wanted.objective) if t is not None]
    if wanted.cache is False or not all(dataclasses.is_dataclass(t) for t in own):
        return None
    return cache.default_directory() if wanted.cache is True else Path(wanted.cache)
