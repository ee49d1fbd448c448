"""`ap.sweep`: which mesh, and which schedule on it?

result = ap.sweep(train_step, abstract_args, devices=32, device="tpu_v3", axes=("batch", "model"))
print(result)                    a row per factorisation of 32: step, memory, whether it fits
best = result.best
step = ap.jit(train_step, best.mesh, [best.tactic])
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopart.api.any_jit import any_jit
from autopart.api.asked_passes import passes_asked
from autopart.api.automatic import AutomaticPartition
from autopart.api.jit import OPTIONS, known_options
from autopart.api.names import Keys
from autopart.api.plan.replay_tactic import Replay
from autopart.api.schedule_named import Schedule, schedule_of
from autopart.api.tactic import TacticContext, actions_of
from autopart.api.trace import LoadedProgram
from autopart.core.actions import text_of
from autopart.core.arguments import (
    ANYTHING,
    NONE,
    PATH,
    TEXT,
    check,
    instance,
    sequence,
    shown,
    whole,
)
from autopart.core.errors import MeshError, PartitionError
from autopart.core.html import lines_html, table_html
from autopart.core.mesh import Mesh
from autopart.core.partitioning import Partitioning
from autopart.core.units import bytes_text, seconds_text
from autopart.costmodel.cost_models import cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.search.budget import Budget
from autopart.search.cost import Objective
from autopart.search.execution.executor import Executor, executor_of
from autopart.search.mesh_search import MeshTask, search_meshes
from autopart.search.optimizers.optimizer import Optimizer, optimizer_of
from autopart.search.search import DEFAULT_OBJECTIVE, Search, SearchResult
from autopart.spmd.device_local import LoweringOptions

SWEEP_BUDGET = Budget(400)
"""Evaluations per mesh unless told otherwise."""


@dataclass(frozen=True)
class SweepRow:
    """What was found on one mesh.

    step_s, peak_bytes, fits   estimates of the best schedule; None where the mesh cannot be used
    searched                   False: given up after a part of the budget, because others were much better; what was
                               found until then, the named schedules at least, bounds what a whole search would find
    error                      why the mesh cannot be used
    """

    mesh: Mesh
    step_s: float | None = None
    peak_bytes: float | None = None
    fits: bool | None = None
    score: float = float("inf")
    evaluations: int = 0
    searched: bool = False
    decisions: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    error: str = ""
    tactic: Replay | None = None

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "mesh": self.mesh.shape, "step_s": self.step_s, "peak_bytes": self.peak_bytes, "fits": self.fits,
            "evaluations": self.evaluations, "searched": self.searched, "decisions": list(self.decisions),
            "actions": list(self.actions), "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, in the order of the meshes."""

    rows: tuple[SweepRow, ...]
    device: str | None

    @property
    def best(self) -> SweepRow:
        """Of the rows that fit, the one with the smallest objective; where none does, the one that needs least memory.

        Raises `MeshError` where no mesh could be used.
        """
        usable = [r for r in self.rows if not r.error]
        if not usable:
            raise MeshError(
                "no mesh of the sweep could be used", why=self.rows[0].error if self.rows else "there is none"
            )
        fitting = [r for r in usable if r.fits]
        if fitting:
            return min(fitting, key=lambda r: r.score)
        return min(usable, key=lambda r: r.peak_bytes or 0.0)

    def __str__(self) -> str:
        header = ["mesh", "step", "peak", "fits", "evaluations", ""]
        rows = [header, *map(self._cells, self.rows)]
        widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        if not any(row.fits for row in self.rows):
            lines.append("none fits: the best is the one that needs least memory")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: a row per mesh."""
        header = ["mesh", "step", "peak", "fits", "evaluations", ""]
        note = [] if any(row.fits for row in self.rows) else ["none fits: the best is the one that needs least memory"]
        return table_html(header, map(self._cells, self.rows)) + lines_html(note)

    def _cells(self, row: SweepRow) -> list[str]:
        if row.error or row.step_s is None or row.peak_bytes is None:
            return [str(row.mesh), "-", "-", "-", "-", row.error.splitlines()[0]]
        note = "best" if row is self.best else "" if row.searched else "given up early"
        return [
            str(row.mesh),
            seconds_text(row.step_s) if row.searched else f"<= {seconds_text(row.step_s)}",
            bytes_text(row.peak_bytes),
            "yes" if row.fits else "no",
            str(row.evaluations),
            note,
        ]

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV, in seconds and bytes, one column per axis; also written to `path`."""
        out = io.StringIO()
        axes = list(dict.fromkeys(a for r in self.rows for a in r.mesh.axis_names))
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*axes, "step_s", "peak_bytes", "fits", "evaluations", "searched", "error"])
        for r in self.rows:
            sizes = [r.mesh.shape[a] for a in axes]
            writer.writerow([*sizes, r.step_s, r.peak_bytes, r.fits, r.evaluations, r.searched, r.error])
        return _written(out.getvalue(), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything as JSON; also written to `path`."""
        data = {"device": self.device, "rows": [r.plain() for r in self.rows]}
        return _written(json.dumps(data, indent=1), path)

    def plot(self, path: str | Path) -> None:
        """Seconds against memory, a point per mesh, the device's memory as a line; needs matplotlib."""
        from autopart.api.sweep_plot import write_plot

        check("Sweep.plot", path=(path, PATH))
        write_plot(self, path)


_AXES = sequence(TEXT, "a list of axis names", least=1)
_MESHES = sequence(instance("meshes", Mesh), "a list of ap.Mesh({...})", least=1) | NONE


def sweep(
    fun: Callable | LoadedProgram,
    args: Sequence[Any] = (),
    *,
    devices: int | None = None,
    device: str | None = None,
    axes: Sequence[str] = ("batch", "model"),
    schedule: Schedule = (),
    meshes: Sequence[Mesh] | None = None,
    optimizer: str | Optimizer = "mcts",
    budget: Budget = SWEEP_BUDGET,
    seed: int = 0,
    executor: str | Executor = "serial",
    objective: Objective = DEFAULT_OBJECTIVE,
    cost_model: str | CostModel | None = None,
    options: LoweringOptions = LoweringOptions(),
    cache: bool | str | Path = True,
    **jit_options: Any,
) -> Sweep:
    """Searches a schedule for `fun` on every mesh of `devices` devices with these `axes`, in parallel on the executor.

    Every way to write `devices` as an ordered product is a mesh, sizes of 1 included; or `meshes` are given, each with
    a device of its own. `schedule` is applied first on each; a mesh on which that is not legal gets a row that says
    so. `budget` counts per mesh; one whose result after a quarter of it is much worse than the best is given up.
    `jit_options` are those of `ap.jit` (`donate_argnums`, ...).
    """
    if meshes is None and not whole(1, 2**20).legal(devices):
        raise MeshError(f"a sweep over {shown(devices)} devices", why=f"it is {whole(1, 2**20).says}, or give meshes=")
    check("ap.sweep", args=(args, sequence(ANYTHING, "a list of arguments")), axes=(axes, _AXES))
    check("ap.sweep", device=(device, TEXT if meshes is None else TEXT | NONE))
    schedule = schedule_of("ap.sweep", schedule)
    check("ap.sweep", meshes=(meshes, _MESHES), options=(options, OPTIONS))
    AutomaticPartition(
        list(axes), optimizer=optimizer, budget=budget, seed=seed, executor=executor, objective=objective,
        cost_model=cost_model, options=options, cache=cache,
    )  # fmt: skip
    jit_options, cost_model = known_options("ap.sweep", jit_options), cost_model_of(cost_model)
    found = list(meshes or (Mesh(sizes, device=device) for sizes in factorisations(devices or 1, axes)))
    if asked := passes_asked(schedule, found):
        jit_options = {**jit_options, "passes": [*jit_options.get("passes", ()), *asked]}
    function = any_jit(fun, found[0], args, **jit_options)
    traced = function.traced(args, {})
    starts: dict[int, Partitioning] = {}
    errors: dict[int, str] = {}
    for number, mesh in enumerate(found):
        try:
            partitioning = Partitioning(traced.program, mesh)
            tactics = [*function.given(traced, mesh), *schedule]
            actions_of(partitioning, tactics, TacticContext(options, cost_model_of(cost_model)))
        except PartitionError as error:
            errors[number] = str(error)
        else:
            starts[number] = partitioning
    wanted = Search(
        axes=tuple(axes) if meshes is None else found[0].axis_names, optimizer=optimizer_of(optimizer), budget=budget,
        seed=seed, objective=objective, cost_model=cost_model, options=options, cache=cache,
    )  # fmt: skip
    session = executor_of(executor).start(MeshTask(tuple(starts.values()), wanted))
    try:
        results = dict(zip(starts, search_meshes(session, len(starts), budget), strict=True)) if starts else {}
    finally:
        session.close()
    rows = [_row(starts[n], *results[n]) if n in results else SweepRow(m, error=errors[n]) for n, m in enumerate(found)]
    named = {mesh.device for mesh in found}
    return Sweep(tuple(rows), named.pop() if len(named) == 1 else None)


def _row(start: Partitioning, found: SearchResult, searched: bool) -> SweepRow:
    best, keys = found.report["best"], Keys(start.program)
    return SweepRow(
        mesh=start.mesh,
        step_s=best["step_s"],
        peak_bytes=best["peak_bytes"],
        fits=best["fits"],
        score=best["score"],
        evaluations=found.report["evaluations"],
        searched=searched,
        decisions=tuple(found.report["decisions"]),
        actions=tuple(text_of(a, keys) for a in found.actions),
        tactic=Replay(found.actions),
    )


def factorisations(count: int, axes: Sequence[str]) -> Iterator[dict[str, int]]:
    """Every way to write `count` as a product of one factor per axis, the first axis largest first.

    >>> [tuple(sizes.values()) for sizes in factorisations(4, ("batch", "model"))]
    [(4, 1), (2, 2), (1, 4)]
    """
    divisors = [d for d in range(count, 0, -1) if count % d == 0]
    for sizes in itertools.product(divisors, repeat=len(axes)):
        product = 1
        for size in sizes:
            product *= size
        if product == count:
            yield dict(zip(axes, sizes, strict=True))


def _written(text: str, path: str | Path | None) -> str:
    check("Sweep", path=(path, PATH | NONE))
    if path is not None:
        Path(path).write_text(text)
    return text
