"""Which program a schedule with a search is given: whole or in microbatches, with what is kept or computed again.

    ap.AutomaticPartition(axes, microbatch=(1, 4), recompute=True)

    program                       named schedules               search
    whole                         2.1 s  61 GB, does not fit    -
    Recompute("blocks")           2.6 s  22 GB                  2.3 s  31 GB    taken
    Microbatch(4)                 2.2 s  34 GB                  2.4 s  29 GB
    Microbatch(4), "blocks"       2.8 s  14 GB                  -

Each program is partitioned by the whole schedule, in two rounds. In the first the search costs its named schedules and
nothing else. The best of those that compute again and fit then keeps what the memory that is left has room for: results
by kind and type (`kept_results.py`), one group after another, each as long as the step gets shorter and fits. The
`FINALISTS` best go on to the second round, each with its share of the search's budget. Costs are the
schedule's own, so sharding, microbatches and recomputation are chosen together under the device's memory. A program
whose arithmetic alone, divided by all devices at their peak rate, takes longer than a step that fits is left out: no
sharding of it is faster.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from autopart.api.automatic import AutomaticPartition, SearchWarning
from autopart.api.does_not_fit import Priced, advice, larger_meshes
from autopart.api.kept_results import kept_instead
from autopart.api.microbatch import Microbatch, MicrobatchLoop
from autopart.api.recompute import RecomputationOf, Recompute
from autopart.api.schedule import Scheduled, run_schedule
from autopart.api.tactic import Tactic, TacticContext
from autopart.api.trace import Traced
from autopart.core.errors import ArgumentError, PartitionError
from autopart.core.mesh import Mesh
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import work
from autopart.core.partitioning import Partitioning
from autopart.core.passes import Pass
from autopart.core.program import Program
from autopart.costmodel.estimate import CostModel
from autopart.costmodel.hardware.devices import device
from autopart.search.budget import Budget
from autopart.search.problem import Problem
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.named.inputs import Inputs
from autopart.spmd.device_local import LoweringOptions
from autopart.spmd.microbatch import AXIS

FINALISTS = 2
"""Programs that the search's budget is divided among."""


TRIALS = 6
"""Groups of results that are kept on trial."""

ROOM = 0.75
"""Share of the memory up to which results are kept because there is room: a compiler may need more than is estimated.

The TPU compiler needs up to 1.3 times as much (`python -m experiments.fitting compiler`).
"""


@dataclass(frozen=True)
class NamedOnly:
    """An optimizer that looks no further than the named schedules, which are costed before it."""

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""


@dataclass(frozen=True)
class Rewriting:
    """How a program is rewritten before it is partitioned."""

    microbatch: Microbatch | None
    recompute: Recompute | None

    def __str__(self) -> str:
        """The tactics, as code."""
        found = []
        if self.microbatch is not None:
            found.append(f"ap.Microbatch({dict(self.microbatch.inputs)!r}, steps={self.microbatch.steps})")
        if self.recompute is not None:
            found.append(f"ap.Recompute({self.recompute.keep!r})")
        return ", ".join(found)

    @property
    def report(self) -> dict[str, Any]:
        """What its tactics say of themselves."""
        tactics = [tactic for tactic in (self.microbatch, self.recompute) if tactic is not None]
        return {key: said for tactic in tactics for key, said in tactic.report.items()}

    def passes(self) -> list[Pass]:
        """The passes that rewrite it."""
        context, found = TacticContext(), list[Pass]()
        if self.microbatch is not None:
            found.append(MicrobatchLoop(self.microbatch, context))
        if self.recompute is not None:
            found.append(RecomputationOf(self.recompute, context))
        return found

    def of(self, traced: Traced) -> Traced:
        """The rewritten program, on every platform it may be lowered for."""
        passes, again = self.passes(), traced.again
        made = traced.after(passes)
        return made if again is None else dataclasses.replace(made, again=lambda name: again(name).after(passes))


@dataclass(frozen=True)
class Setting:
    """What is the same for all programs."""

    mesh: Mesh
    schedule: tuple[Tactic, ...]
    options: LoweringOptions
    cost_model: CostModel | None
    strict: bool
    given: Callable[[Traced, Mesh], Sequence[Tactic]]
    """What comes before the schedule on a program and a mesh."""

    def run(self, traced: Traced, schedule: Sequence[Tactic], strict: bool) -> Scheduled:
        """A schedule on one program."""
        tactics = (*self.given(traced, self.mesh), *schedule)
        return run_schedule(traced.program, self.mesh, tactics, self.options, self.cost_model, strict)

    def run_with(self, traced: Traced, search: AutomaticPartition, place: int, strict: bool) -> Scheduled:
        """The schedule on one program, with `search` in place of its own."""
        return self.run(traced, (*self.schedule[:place], search, *self.schedule[place + 1 :]), strict)

    def before(self, scheduled: Scheduled) -> int:
        """How many reports come before that of the schedule's first tactic."""
        return len(scheduled.reports) - len(self.schedule)


@dataclass(frozen=True)
class Tried:
    """A program with what the schedule gives on it; without where it cannot be."""

    rewriting: Rewriting
    traced: Traced | None = None
    scheduled: Scheduled | None = None
    why: str = ""
    error: PartitionError | None = None

    @property
    def rank(self) -> tuple[float, float, float]:
        """Of two, the one with the smaller is better: it fits, then seconds; where neither fits, bytes."""
        estimate = self.scheduled.estimate if self.scheduled is not None else None
        if estimate is None:
            return (2.0, math.inf, math.inf)
        return (0.0, estimate.step_s, 0.0) if estimate.fits else (1.0, estimate.peak_bytes, estimate.step_s)

    def row(self) -> dict[str, Any]:
        """As plain values."""
        estimate = self.scheduled.estimate if self.scheduled is not None else None
        figures = {} if estimate is None else {"step_s": estimate.step_s, "peak_bytes": estimate.peak_bytes}
        return {"program": str(self.rewriting) or "as it is", **figures, **({"why": self.why} if self.why else {})}


def scheduled_best(traced: Traced, setting: Setting) -> tuple[Traced, Scheduled]:
    """The program that is best partitioned by the schedule, and how."""
    place = next((i for i, tactic in enumerate(setting.schedule) if _chooses(tactic)), None)
    if place is None:
        scheduled = setting.run(traced, setting.schedule, setting.strict)
        return traced, _advised(traced, setting, scheduled, ())
    search = setting.schedule[place]
    assert isinstance(search, AutomaticPartition)
    _check_alone(setting, search, place)
    plain = dataclasses.replace(search, microbatch=(), recompute=False)
    tried = _first_round(traced, setting, search, plain, place)
    finalists = _usable(tried, setting, place)[:FINALISTS]
    again = dataclasses.replace(plain, budget=_share(search.budget, len(finalists)))
    found = [_tried(t.rewriting, traced, setting, again, place, strict=setting.strict) for t in finalists]
    best = _usable(found if setting.strict or not _goes_on(search.budget) else [*found, *finalists], setting, place)[0]
    made, scheduled = cast(Traced, best.traced), cast(Scheduled, best.scheduled)
    scheduled = _advised(traced, setting, scheduled, tried)
    return made, _reported(scheduled, setting.before(scheduled) + place, best, [*tried, *found])


def _usable(tried: Sequence[Tried], setting: Setting, place: int) -> list[Tried]:
    """Those that could be partitioned, the best first; raises what the schedule raised where none could."""
    usable = sorted((t for t in tried if t.scheduled is not None), key=lambda t: t.rank)
    if usable:
        return usable
    for one in tried:
        if one.error is not None and not str(one.rewriting):
            raise one.error
    error = ArgumentError("none of the programs can be partitioned", why="\n       ".join(t.why for t in tried))
    raise TacticContext(position=place + 1, count=len(setting.schedule)).blamed(error, setting.schedule[place])


def _chooses(tactic: Tactic) -> bool:
    return isinstance(tactic, AutomaticPartition) and bool(tactic.microbatch or tactic.recompute)


def _goes_on(budget: Budget) -> bool:
    return budget.evaluations != 0 and budget.seconds != 0


def _share(budget: Budget, among: int) -> Budget:
    return dataclasses.replace(
        budget,
        evaluations=budget.evaluations and max(1, budget.evaluations // among),
        seconds=None if budget.seconds is None else budget.seconds / among,
    )


def _check_alone(setting: Setting, search: AutomaticPartition, place: int) -> None:
    """One search chooses the program, and nothing else in the schedule says the same."""
    for other, tactic in enumerate(setting.schedule):
        said = (isinstance(tactic, Microbatch) and search.microbatch) or (
            isinstance(tactic, Recompute) and search.recompute
        )
        if said or (other != place and _chooses(tactic)):
            raise TacticContext(position=other + 1, count=len(setting.schedule)).blamed(
                ArgumentError(
                    f"{search.name} chooses the program too",
                    why="it was given microbatch= or recompute=, and a program is rewritten once",
                    hint="leave one of them out",
                ),
                tactic,
            )


def named_only(search: AutomaticPartition) -> AutomaticPartition:
    """The search with nothing but its seeds and the named schedules."""
    return dataclasses.replace(search, optimizer=NamedOnly(), baselines=True, referee=None)


def _first_round(
    traced: Traced, setting: Setting, search: AutomaticPartition, plain: AutomaticPartition, place: int
) -> list[Tried]:
    """Every program with the named schedules on it, those left out that cannot be faster."""
    named = named_only(plain)
    tried: list[Tried] = []
    for rewriting in rewritings(traced.program, search):
        fastest = min((t.rank[1] for t in tried if t.rank[0] == 0), default=math.inf)
        tried.append(_tried(rewriting, traced, setting, named, place, fastest))
    if search.recompute is True:
        price = lambda rewriting: _tried(rewriting, traced, setting, named, place)  # noqa: E731
        tried += _kept_more(traced, tried, price, setting.mesh)
    return tried


def _kept_more(
    traced: Traced, tried: Sequence[Tried], price: Callable[[Rewriting], Tried], mesh: Mesh
) -> Iterator[Tried]:
    """The best program that computes again and fits, with more and more groups of results kept."""
    best = min((t for t in tried if t.rewriting.recompute is not None), key=lambda t: t.rank, default=None)
    if best is None or best.rewriting.recompute is None or best.traced is None or best.rank[0] > 0:
        return
    if not str(min(tried, key=lambda t: t.rank).rewriting):
        return
    microbatch, keep = best.rewriting.microbatch, best.rewriting.recompute.policies
    whole = Rewriting(microbatch, None).of(traced).program
    turns = 1 if microbatch is None else microbatch.steps
    for group in kept_instead(whole, best.traced.program, mesh, turns)[:TRIALS]:
        found = price(Rewriting(microbatch, Recompute([*keep, group.policy])))
        estimate = found.scheduled.estimate if found.scheduled is not None else None
        if estimate is not None and estimate.fits and estimate.peak_bytes > ROOM * device(estimate.device).hbm_bytes:
            found = Tried(found.rewriting, why=f"it leaves less than {1 - ROOM:.0%} of the memory")
        yield found
        if found.rank < best.rank:
            best, keep = found, (*keep, group.policy)


def _tried(
    rewriting: Rewriting,
    traced: Traced,
    setting: Setting,
    search: AutomaticPartition,
    place: int,
    fastest: float = math.inf,
    strict: bool = False,
) -> Tried:
    """What the schedule gives on a rewritten program, unless its flop alone take longer than `fastest`."""
    try:
        made = rewriting.of(traced)
        least = _least_seconds(made.program, setting)
        if least >= fastest:
            return Tried(rewriting, why=f"its flop alone take {least:.3g} s")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchWarning)
            return Tried(rewriting, made, setting.run_with(made, search, place, strict))
    except PartitionError as error:
        return Tried(rewriting, why=f"{rewriting}: {error.what}".removeprefix(": "), error=error)


def _least_seconds(program: Program, setting: Setting) -> float:
    """Seconds that the flop of the matrix unit take on all devices at their peak; 0 where another cost model prices."""
    if setting.cost_model is not None or setting.mesh.device is None:
        return 0.0
    each = [work(traits_of(spec), spec) for spec in program.specs]
    flop = [0.0 if w is None else w.matrix_flop for w in each]
    runs = program.scope_trips[program.op_scope]
    total = float(sum(flop[s] * n for s, n in zip(program.op_spec.tolist(), runs.tolist(), strict=True)))
    return total / setting.mesh.size / max(device(setting.mesh.device).peak_flop_per_s.values())


def rewritings(program: Program, search: AutomaticPartition) -> Iterator[Rewriting]:
    """The programs that a search chooses from; the first is the one that costs least where it fits."""
    policies = ("matmuls", "blocks") if search.recompute is True else tuple(search.recompute or ())
    steps = tuple(search.microbatch) or (1,)
    inputs = batch_inputs(program, [s for s in steps if s > 1])
    for number in steps:
        microbatch = None if number == 1 else Microbatch(inputs, number)
        if microbatch is not None and not inputs:
            continue
        for policy in (None, *policies):
            yield Rewriting(microbatch, None if policy is None else Recompute(policy))


def batch_inputs(program: Program, steps: Sequence[int]) -> Mapping[str, Any]:
    """The inputs that are data, with their batch dims, as `ap.Microbatch` takes them; empty where none is found."""
    if not steps:
        return {}
    space = DecisionSpace.of(Partitioning(program, Mesh({AXIS: math.gcd(*steps)})), [AXIS])
    below: dict[str, dict[str, int]] = {}
    for value, dim in Inputs.of(space, AXIS).dims.items():
        head, _, rest = program.value_name(value).partition("/")
        below.setdefault(head, {})[rest] = dim
    leaves = Counter(name.partition("/")[0] for name in program.argument_names)
    return {head: _one_dim(dims, leaves[head]) for head, dims in below.items()}


def _one_dim(dims: dict[str, int], leaves: int) -> Any:
    """The dim of all leaves where it is the same for all, else a dim for each path."""
    return next(iter(dims.values())) if len(dims) == leaves and len(set(dims.values())) == 1 else dims


# ---- where nothing fits

LIKELY = {"microbatch": (1, 4), "recompute": ("blocks",)}
"""The programs that are tried for a search which was not asked to choose one, once nothing fits."""


def _advised(traced: Traced, setting: Setting, scheduled: Scheduled, tried: Sequence[Tried]) -> Scheduled:
    """Warns of a search's result that does not fit, with what would; the search's report then has the lines."""
    estimate = scheduled.estimate
    place = next((i for i, row in enumerate(scheduled.reports) if "does_not_fit" in row.report), None)
    if place is None:
        return scheduled
    missing = scheduled.reports[place].report["does_not_fit"]
    search = setting.schedule[place - setting.before(scheduled)]
    if estimate is None or not isinstance(search, AutomaticPartition) or not _is_simulated(search, setting):
        warnings.warn("\n  ".join(missing), SearchWarning, stacklevel=4)
        return scheduled
    if estimate.fits:
        return scheduled
    memory_bytes = device(estimate.device).hbm_bytes
    lines = advice(
        estimate, lambda: _changes(traced, setting, search, place - setting.before(scheduled), tried), memory_bytes
    )
    warnings.warn("\n  ".join([f"{missing[0]}; why, and what would:", *lines]), SearchWarning, stacklevel=4)
    reports = list(scheduled.reports)
    reports[place] = dataclasses.replace(reports[place], report={**reports[place].report, "advice": lines})
    return dataclasses.replace(scheduled, reports=tuple(reports))


def _is_simulated(search: AutomaticPartition, setting: Setting) -> bool:
    """Whether the simulator alone said that nothing fits, so that it can say what would."""
    return search.cost_model is None and search.referee is None and setting.cost_model is None


def _changes(
    traced: Traced, setting: Setting, search: AutomaticPartition, place: int, tried: Sequence[Tried]
) -> Iterator[Priced]:
    """Other programs, then other meshes, each with the named schedules."""
    named = dataclasses.replace(named_only(search), microbatch=(), recompute=False)
    if not tried and not any(isinstance(tactic, Microbatch | Recompute) for tactic in setting.schedule):
        likely = rewritings(traced.program, dataclasses.replace(search, **LIKELY))
        tried = [_tried(r, traced, setting, named, place) for r in likely if str(r)]
    for one in tried:
        yield str(one.rewriting) or "the program as it is", one.scheduled.estimate if one.scheduled else None
    for code, mesh in larger_meshes(setting.mesh):
        larger = dataclasses.replace(setting, mesh=mesh)
        found = _tried(Rewriting(None, None), traced, larger, named, place)
        yield code, found.scheduled.estimate if found.scheduled else None


def _reported(scheduled: Scheduled, place: int, best: Tried, tried: Sequence[Tried]) -> Scheduled:
    """With what was chosen, and from what, in the search's report."""
    reports = list(scheduled.reports)
    chosen = str(best.rewriting)
    said = {"program": chosen or "as it is", "programs": [t.row() for t in tried], **best.rewriting.report}
    note = f"the program is rewritten first: {chosen}" if chosen else "the program is taken as it is"
    row = reports[place]
    reports[place] = dataclasses.replace(row, report={**row.report, **said}, notes=(*row.notes, note))
    return dataclasses.replace(scheduled, reports=tuple(reports))
