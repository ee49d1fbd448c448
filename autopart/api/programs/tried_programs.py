"""What a schedule makes of one rewritten program: its seconds and bytes, or why there are none.

A program whose arithmetic alone, divided by all devices at their peak rate, takes longer than a step that fits is left
out: no sharding of it is faster.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.api.programs.rewritings import Rewriting
from autopart.api.tactics.automatic import AutomaticPartition, SearchWarning
from autopart.api.tactics.schedule import Scheduled, run_schedule
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import Traced
from autopart.base.errors import PartitionError
from autopart.core.mesh import Mesh
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import work
from autopart.core.program import Program
from autopart.costmodel.estimate import CostModel, Estimate
from autopart.costmodel.hardware.devices import device
from autopart.search.problem import Problem
from autopart.spmd.device_local import LoweringOptions


@dataclass(frozen=True)
class NamedOnly:
    """An optimizer that looks no further than the named schedules, which are costed before it."""

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""


def named_only(search: AutomaticPartition) -> AutomaticPartition:
    """The search with nothing but its seeds and the named schedules."""
    return dataclasses.replace(search, optimizer=NamedOnly(), baselines=True, referee=None)


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

    def run_with(self, traced: Traced, tactics: Sequence[Tactic], place: int, strict: bool) -> Scheduled:
        """The schedule on one program, with `tactics` in place of its search."""
        return self.run(traced, (*self.schedule[:place], *tactics, *self.schedule[place + 1 :]), strict)

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
    def estimate(self) -> Estimate | None:
        """What it costs."""
        return self.scheduled.estimate if self.scheduled is not None else None

    @property
    def rank(self) -> tuple[float, float, float]:
        """Of two, the one with the smaller is better."""
        return (2.0, math.inf, math.inf) if self.estimate is None else rank(self.estimate)

    def row(self) -> dict[str, Any]:
        """As plain values."""
        estimate = self.estimate
        figures = {} if estimate is None else {"step_s": estimate.step_s, "peak_bytes": estimate.peak_bytes}
        return {"program": str(self.rewriting) or "as it is", **figures, **({"why": self.why} if self.why else {})}


def rank(estimate: Estimate) -> tuple[float, float, float]:
    """Of two, the one with the smaller is better: it fits, then seconds; where neither fits, bytes."""
    return (0.0, estimate.step_s, 0.0) if estimate.fits else (1.0, estimate.peak_bytes, estimate.step_s)


def tried_program(
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
        made, stages = rewriting.of(traced), () if rewriting.pipeline is None else (rewriting.pipeline.tactic,)
        least = _least_seconds(made.program, setting)
        if least >= fastest:
            return Tried(rewriting, why=f"its flop alone take {least:.3g} s")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchWarning)
            return Tried(rewriting, made, setting.run_with(made, (*stages, search), place, strict))
    except PartitionError as error:
        why = f"{error.what} ({' '.join(error.why.split())})" if error.why else error.what
        return Tried(rewriting, why=f"{rewriting}: {why}".removeprefix(": "), error=error)


def _least_seconds(program: Program, setting: Setting) -> float:
    """Seconds that the flop of the matrix unit take on all devices at their peak; 0 where another cost model prices."""
    if setting.cost_model is not None or setting.mesh.device is None:
        return 0.0
    each = [work(traits_of(spec), spec) for spec in program.specs]
    flop = [0.0 if w is None else w.matrix_flop for w in each]
    runs = program.scope_trips[program.op_scope]
    total = float(sum(flop[s] * n for s, n in zip(program.op_spec.tolist(), runs.tolist(), strict=True)))
    return total / setting.mesh.size / max(device(setting.mesh.device).peak_flop_per_s.values())
