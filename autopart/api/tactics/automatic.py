"""`ap.AutomaticPartition`: a tactic that searches.

    auto = ap.AutomaticPartition(axes=["batch", "model"], optimizer=ap.MCTS(), budget=ap.Budget(1000), seed=0)
    step = ap.jit(train_step, mesh, [BP, auto])      # BP stays as it is; a later tactic builds on what auto found

It issues the same actions as a manual tactic; the metadata says which, at what cost, and prints them as code.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from autopart.api.plan.hosts import all_processes, by_the_first
from autopart.api.tactics.manual import UNEVEN
from autopart.api.tactics.schedule_named import Schedule, schedule_of
from autopart.api.tactics.tactic import TacticContext, TacticResult, actions_of
from autopart.base.arguments import (
    ANYTHING,
    AXES,
    FLAG,
    NONE,
    PATH,
    STRING,
    check_fields,
    check_once,
    function_of,
    instance,
    sequence,
    whole,
)
from autopart.base.errors import ArgumentError, PartitionWarning
from autopart.base.user_line import warn
from autopart.core.mesh import Mesh
from autopart.core.passes import Policy
from autopart.core.passes.recompute import KEEP_ONE
from autopart.core.table.actions import Action, action_of, row_of
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.cost_models import COST_MODEL, cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.search.budget import Budget
from autopart.search.evaluation.cost import Objective
from autopart.search.execution.executor import EXECUTOR, Executor
from autopart.search.optimizers.optimizer import OPTIMIZER, Optimizer
from autopart.search.search import (
    DEFAULT_BUDGET,
    DEFAULT_FINALISTS,
    DEFAULT_OBJECTIVE,
    Search,
    SearchResult,
    search,
)
from autopart.spmd.device_local import LoweringOptions


class SearchWarning(PartitionWarning):
    """What a search found is not what was hoped for: nothing fits, workers died over some of it, the referee failed."""


_PATH = PATH | NONE
_FIELDS = {
    "axes": AXES | NONE,
    "optimizer": OPTIMIZER,
    "budget": instance("an ap.Budget(...)", Budget),
    "seed": whole(0),
    "name": STRING,
    "executor": EXECUTOR,
    "objective": function_of(1),
    "cost_model": COST_MODEL,
    "options": instance("an ap.LoweringOptions(...)", LoweringOptions) | NONE,
    "seeds": sequence(ANYTHING, "a list of schedules"),
    "baselines": FLAG,
    "records": _PATH,
    "resume": _PATH,
    "cache": FLAG | PATH,
    "progress": FLAG | NONE,
    "referee": COST_MODEL,
    "finalists": whole(1),
    "microbatch": sequence(whole(1, 2**20), "a list of numbers of microbatches, such as (1, 2, 4)"),
    "recompute": FLAG | sequence(KEEP_ONE, 'a list of policies of ap.Recompute, such as ["blocks"]'),
    "uneven": UNEVEN,
    "stages": FLAG | AXES,
}
"""What each field may be."""


@dataclass(frozen=True)
class AutomaticPartition:
    """Searches for actions over some mesh axes, by estimated cost.

    axes        mesh axes it may use; one name or several. Default: all axes of the mesh
    optimizer   "mcts", "ilp", "hybrid", "beam", "greedy", "annealing", "random", "exhaustive", any name, or an instance
    budget      evaluations and seconds at most; `Budget(0)` leaves everything as the earlier tactics did
    seed        same seed, same budget in evaluations: same result, on any number of workers
    executor    "serial", "processes", "ray", or an instance such as `Ray(address=..., workers=8)`
    objective   `Cost -> float` to minimise; default: step seconds with a penalty above the device's memory
    cost_model  a registered name ("simulator", "xla_cpu_memory") or `(local, mesh) -> Estimate`; default: the one of
                `ap.jit`, else the simulator, for which the mesh must name a device
    seeds       schedules that are costed first, before the named ones (`baselines`)
    baselines   cost the seeds and the named schedules of the program before the optimizer begins, an evaluation each:
                the result is no worse than any of them, with any optimizer and any budget that reaches them. False: the
                optimizer is shown none
    records     JSON-lines file that every evaluation is added to
    resume      such a file: what it holds is not costed again
    cache       results are kept on disk and a second call is instant: True, False, or a directory
    progress    shows a line on stderr; None: if that is a terminal
    referee     a second cost model, such as `ap.costmodel.XlaCompile("v5e:2x4")`, that costs what was found again: the
                `finalists` best states whose programs differ, `seeds`, and as many named schedules. The best by it is
                the result; both figures are in the report. What it raises costs that finalist, with a `SearchWarning`
    finalists   how many of the best states that are
    microbatch  numbers of microbatches to choose from, such as (1, 2, 4, 8), 1 being the whole batch; the batch is the
                dim of the inputs that data parallelism would tile. Empty: the program stays as it is
    recompute   True: choose what is kept for late uses too: everything, `ap.Recompute("matmuls")` or `("blocks")`; or a
                list of policies
    uneven      what becomes of dims of arguments that an axis does not divide: "refuse" leaves them whole; "pad" makes
                those longer inside the program, as `ap.Pad` does, with which the named schedules are faster

    stages      axes that may become an `ap.Pipeline`, each by itself, or True for all: with the numbers of microbatches
                and policies above, else a few for each stage; in the orders "1f1b", "gpipe" and "circular". Programs
                without stages are searched as they would be without this, and the best with stages as long as each

    With any of the last four, the report says which programs there were, and the notes which one was taken.

    Over several hosts (`jax.distributed`), a search with a limit in seconds runs on process 0, and the others do what
    it found. Ctrl-C ends the search with the best so far. Raises, when applied: `MeshError` for an axis not in the mesh
    or a mesh without a device, `UnknownNameError` for an unknown optimizer or executor, `OptimizerError` if the
    optimizer raises.
    Where nothing fits in memory, the result that needs least is taken, with a `SearchWarning` that says what fills it.
    """

    axes: str | Sequence[str] | None = None
    optimizer: str | Optimizer = "mcts"
    budget: Budget = DEFAULT_BUDGET
    seed: int = 0
    name: str = ""
    executor: str | Executor = "serial"
    objective: Objective = DEFAULT_OBJECTIVE
    cost_model: str | CostModel | None = None
    options: LoweringOptions | None = None
    seeds: Sequence[Schedule] = ()
    baselines: bool = True
    records: str | Path | None = None
    resume: str | Path | None = None
    cache: bool | str | Path = True
    progress: bool | None = None
    referee: str | CostModel | None = None
    finalists: int = DEFAULT_FINALISTS
    microbatch: Sequence[int] = ()
    recompute: bool | Sequence[Policy] = False
    uneven: str = "refuse"
    stages: bool | str | Sequence[str] = False
    is_complete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, ArgumentError, **_FIELDS)
        if self.axes is not None:
            check_once("AutomaticPartition", self.axes)
            object.__setattr__(self, "axes", (self.axes,) if isinstance(self.axes, str) else tuple(self.axes))
        if isinstance(self.stages, str):
            object.__setattr__(self, "stages", (self.stages,))
        seeds = tuple(schedule_of("AutomaticPartition: seeds", seed) for seed in self.seeds)
        object.__setattr__(self, "seeds", seeds)
        object.__setattr__(self, "cost_model", cost_model_of(self.cost_model))
        object.__setattr__(self, "referee", cost_model_of(self.referee))
        if not self.name:
            over = "" if self.axes is None else f"[{','.join(self.axes)}]"
            object.__setattr__(self, "name", f"AutomaticPartition{over}")

    def axes_of(self, mesh: Mesh) -> tuple[str, ...]:
        """The axes that it may use of a mesh."""
        return mesh.axis_names if self.axes is None else tuple(self.axes)

    @property
    def chooses_program(self) -> bool:
        """True if it decides how the program is rewritten, too."""
        return bool(self.microbatch or self.recompute or self.stages) or self.uneven == "pad"

    def on_one_program(self) -> AutomaticPartition:
        """The search that takes a program as it is."""
        return dataclasses.replace(self, microbatch=(), recompute=False, uneven="refuse", stages=False)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`. Searches by the schedule's options and cost model, unless it has its own.

        Raises `ArgumentError` where it was to choose the program, and nobody can change that any more.
        """
        if self.chooses_program:
            where = context.schedule or "a schedule that is run by itself"
            raise ArgumentError(
                f"microbatch=, recompute=, uneven= and stages= cannot stand in {where}",
                why="they choose between programs, and this one is given",
                hint="ap.jit(fun, mesh, schedule)",
            )
        found = self._found(partitioning, context)
        partitioning.apply_all(found.actions)
        if "nothing_tried" in found.report:
            warn(found.report["nothing_tried"], SearchWarning)
        for lost in found.report.get("lost", ()):
            warn(f"a job was given up and the search went on: {lost['why']}", SearchWarning)
        for finalist in found.report.get("referee", {}).get("finalists", ()):
            if finalist["error"]:
                why = f'the referee did not cost "{finalist["labels"][0]}": {finalist["error"]}'
                warn(why, SearchWarning)
        if "does_not_fit" in found.report and context.schedule:  # of its own schedule, ap.jit says so, with advice
            warn("\n  ".join(found.report["does_not_fit"]), SearchWarning)
        return TacticResult(found.actions, found.report)

    def _found(self, partitioning: Partitioning, context: TacticContext) -> SearchResult:
        """What the search found; of several hosts, the first one's, where a limit in seconds would make them differ."""
        wanted, processes = self._search(partitioning, context), all_processes()
        if processes is None or self.budget.seconds is None:
            return search(partitioning, wanted)

        def make() -> dict[str, Any]:
            found = search(partitioning, wanted)
            return {"actions": [row_of(action) for action in found.actions], "report": found.report}

        about = [partitioning.program.fingerprint[:16], str(partitioning.mesh), f"{partitioning.fingerprint:016x}"]
        made = by_the_first(processes, about, make)
        return SearchResult(tuple(map(action_of, made["actions"])), made["report"])

    def _search(self, partitioning: Partitioning, context: TacticContext) -> Search:
        own = cost_model_of(self.cost_model)
        context = dataclasses.replace(
            context, options=self.options or context.options, cost_model=own or context.cost_model
        )
        return Search(
            axes=self.axes_of(partitioning.mesh),
            optimizer=self.optimizer,
            budget=self.budget,
            seed=self.seed,
            executor=self.executor,
            objective=self.objective,
            cost_model=context.cost_model,
            options=context.options,
            given=tuple(self._given(partitioning, n, context) for n in range(len(self.seeds))),
            baselines=self.baselines,
            records=self.records,
            resume=self.resume,
            cache=self.cache,
            progress=sys.stderr.isatty() if self.progress is None else self.progress,
            referee=self.referee,
            finalists=self.finalists,
        )

    def _given(self, partitioning: Partitioning, number: int, context: TacticContext) -> tuple[Action, ...]:
        """The actions of a seed schedule on this state, which is left as it is."""
        context = dataclasses.replace(context, schedule=f'seed {number + 1} of "{self.name}"', notes=())
        return actions_of(partitioning.copy(), schedule_of(context.schedule, self.seeds[number]), context)
