"""An estimate in words: seconds and bytes of a step, and where they come from.

step 2.31 s    compute 1.92 s    all_reduce 0.39 s (418 x, 84 GB)
     2.31 s in turn, 2.02 s overlapped; collectives one by one, before small ones are combined: all_reduce 0.42 s
peak 59.9 GB   arguments 40.2 GB, outputs 0 GB, in between 19.7 GB    does not fit: tpu_v3 holds 17.2 GB
step 2.0 s to 3.0 s, peak 43.7 GB to 96.8 GB on 9 of 10 of 250 plans, by XLA's TPU compiler

Compute and the seconds of each kind add up to the step, collectives in turn: a compiler runs small reductions as one,
which then wait once (`compiled/links/combine.py`), and the seconds of a kind are those that are left.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autopart.base.arguments import NONE, PATH, Kind, check, instance, is_real, shown, whole
from autopart.base.errors import ArgumentError, PartitionError
from autopart.base.html import lines_html, table_html
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, seconds_text
from autopart.base.written_file import write_text
from autopart.core.doors.user_function import called, name_of
from autopart.core.mesh import Mesh
from autopart.costmodel.breakdown import BufferRow, OpRow, top_buffers, top_rows
from autopart.costmodel.compiled.fusion.kernel_graph import DEF_MOVE, USE_MOVE
from autopart.costmodel.compiled.links.redistribution_costs import StepCost
from autopart.costmodel.compiled.simulator import Simulation, Simulator, SimulatorOptions
from autopart.costmodel.hardware.fabric import COLLECTIVE_KINDS
from autopart.costmodel.interval import Interval, interval
from autopart.costmodel.timeline import chrome_trace
from autopart.spmd.device_local import DeviceLocal


@dataclass(frozen=True)
class CollectiveTotal:
    """All collectives of one kind in a step.

    count         how many, as the program has them
    seconds       as they run, small ones combined: with `Estimate.compute_s` these add up to `serial_s`
    bytes         of their larger side on a device
    uncombined_s  if each ran by itself
    """

    count: int
    seconds: float
    bytes: float
    uncombined_s: float

    def with_one(self, step: StepCost, trips: int, saved_s: float) -> CollectiveTotal:
        """With a collective that runs so often, and saves so many seconds each time."""
        return CollectiveTotal(
            self.count + trips * step.count,
            self.seconds + trips * (step.seconds - saved_s),
            self.bytes + trips * step.bytes,
            self.uncombined_s + trips * step.seconds,
        )


KINDS = ("kernels", "collectives", "buffers")
"""What `Estimate.top` can be asked for alone."""

_TOP = Kind(", ".join(map(repr, KINDS)), lambda value: isinstance(value, str) and value in KINDS) | NONE


@dataclass(frozen=True)
class Top:
    """What costs most: `seconds` ranks kernels and collectives, `bytes` the buffers that live at the peak."""

    seconds: tuple[OpRow, ...]
    bytes: tuple[BufferRow, ...]

    def __str__(self) -> str:
        rows = [
            f"{seconds_text(r.seconds):>9}  {r.count:>5} x  {r.what:<44} {r.path:<32} {r.where}" for r in self.seconds
        ]
        rows += [f"{bytes_text(r.bytes):>9}           {r.what:<44} {r.path:<32} {r.where}" for r in self.bytes]
        return "\n".join(map(one_line, rows))

    def _repr_html_(self) -> str:
        """For notebooks: a row for each."""
        rows = [(seconds_text(r.seconds), f"{r.count} x", r.what, r.path, r.where) for r in self.seconds]
        rows += [(bytes_text(r.bytes), "", r.what, r.path, r.where) for r in self.bytes]
        return table_html(["cost", "count", "what", "path", "line"], rows)


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes of one step of a device-local program on one device.

    step_s         seconds of a step: on GPUs, or if the options ask for overlap, `overlapped_s`, else `serial_s`
    serial_s       with collectives and compute one after the other
    overlapped_s   with collectives beside compute that does not need them
    compute_s, collective_s   the two shares of `serial_s`
    peak_bytes     most memory at any time: arguments, outputs, and what is in between
    flop           floating-point operations, of the matrix and the vector unit
    bytes          bytes through HBM
    collectives    kind -> `CollectiveTotal`, every kind listed
    unknown_ops    ops whose flop nobody knows: kind, and how often; only their bytes are in the seconds
    fits, why      whether `peak_bytes` is within the device's memory; if not, the numbers
    """

    step_s: float
    peak_bytes: float
    flop: float
    bytes: float
    serial_s: float
    overlapped_s: float
    compute_s: float
    collective_s: float
    argument_bytes: float
    output_bytes: float
    collectives: Mapping[str, CollectiveTotal]
    fits: bool
    why: str
    device: str
    unknown_ops: tuple[str, ...] = ()
    simulation: Simulation | None = field(default=None, repr=False, compare=False)
    """The run behind it; None for an estimate that another model made."""

    def top(self, k: int = 10, kind: str | None = None) -> Top:
        """The `k` kernels and collectives with the most seconds, and the `k` largest buffers live at the peak.

        `kind` is "kernels", "collectives" or "buffers" for those alone. Rows carry the source line and the pytree path
        of the nearest argument or output. Equal rows are added up. A collective's seconds are those in which it runs
        combined with others, local copies included. Raises `ValueError` for an estimate without a simulation behind it.
        """
        run = self._run()
        check("Estimate.top", k=(k, whole(0)), kind=(kind, _TOP))
        seconds = () if kind == "buffers" else tuple(top_rows(run, k, kind))
        return Top(seconds, tuple(top_buffers(run, k)) if kind in (None, "buffers") else ())

    def timeline(self) -> dict[str, Any]:
        """The step as a Chrome trace: load the JSON in ui.perfetto.dev. Collectives overlap as in `overlapped_s`."""
        return chrome_trace(self._run())

    def write_timeline(self, path: str | Path) -> None:
        """Writes `timeline()` as JSON."""
        check("Estimate.write_timeline", path=(path, PATH))
        write_text(path, json.dumps(self.timeline()), "the timeline")

    @property
    def interval(self) -> Interval | None:
        """What nine of ten estimates like it lie in; None where nobody knows, or another cost model made it."""
        return interval(self.device, self.step_s, self.peak_bytes) if self.simulation is not None else None

    def to_json(self) -> str:
        """Every figure as JSON."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "simulation"]
        figures = {n: getattr(self, n) for n in names}
        figures["collectives"] = {kind: dataclasses.asdict(total) for kind, total in self.collectives.items()}
        return json.dumps(figures, indent=1)

    def _repr_html_(self) -> str:
        """For notebooks: the step by compute and kind of collective, and the memory."""
        rows = [("compute", "", seconds_text(self.compute_s), "", "")]
        rows += [
            (kind, str(t.count), seconds_text(t.seconds), seconds_text(t.uncombined_s), bytes_text(t.bytes))
            for kind, t in self.collectives.items()
            if t.count
        ]
        rows.append(("step, collectives in turn", "", seconds_text(self.serial_s), "", ""))
        table = table_html(["", "times", "seconds", "one by one", "bytes"], rows)
        return table + lines_html(str(self).splitlines()[1:])

    def _run(self) -> Simulation:
        if self.simulation is None:
            raise PartitionError("this estimate was not made by the simulator: it has no ops to list")
        return self.simulation

    def __str__(self) -> str:
        there = {kind: total for kind, total in self.collectives.items() if total.count}
        parts = [f"{k} {seconds_text(t.seconds)} ({t.count} x, {bytes_text(t.bytes)})" for k, t in there.items()]
        alone = ", ".join(f"{k} {seconds_text(t.uncombined_s)}" for k, t in there.items())
        alone = f"; collectives one by one, before small ones are combined: {alone}" if alone else ""
        between = self.peak_bytes - self.argument_bytes - self.output_bytes
        unknown = [f"no flop are known of: {', '.join(self.unknown_ops)}"] if self.unknown_ops else []
        total, within = bytes_text(self.peak_bytes), (self.argument_bytes, self.output_bytes, between)
        shares = zip(("arguments", "outputs", "in between"), map(bytes_text, within), strict=True)
        fits = "fits" if self.fits else f"does not fit: {self.why}"
        return "\n".join(
            [
                f"step {seconds_text(self.step_s)}  compute {seconds_text(self.compute_s)}  " + "  ".join(parts),
                f"     {seconds_text(self.serial_s)} in turn, {seconds_text(self.overlapped_s)} overlapped{alone}",
                f"peak {total}  {', '.join(f'{what} {size}' for what, size in shares)}  {fits}",
                *([str(self.interval)] if self.interval else []),
                *unknown,
            ]
        )


_LOCAL = instance("a device-local program, such as lowered.program; lowered.estimate is there already", DeviceLocal)

CostModel = Callable[[DeviceLocal, Mesh], Estimate]
"""What prices a device-local program: `estimate`, `XlaCompile(...)`, or your own callable."""


def priced_by(cost_model: CostModel, local: DeviceLocal, mesh: Mesh) -> Estimate:
    """What a cost model that a user brings says; raises `ArgumentError` where that is no estimate."""
    found = called(ArgumentError, f"the cost model {name_of(cost_model)}", cost_model, local, mesh)
    for name in ("step_s", "peak_bytes"):
        if not is_real(getattr(found, name, None)):
            raise ArgumentError(
                f"the cost model returned {shown(found)}",
                why=f"its {name} is {shown(getattr(found, name, None))}",
                hint="an ap.Estimate, such as dataclasses.replace(estimate(local, mesh), step_s=...)",
            )
    return found


def estimate(local: DeviceLocal, mesh: Mesh | None = None, options: SimulatorOptions | None = None) -> Estimate:
    """The simulator's estimate of a device-local program on `mesh` (default: the mesh it was lowered for).

    Raises `MeshError` if the mesh names no device or an axis has no link. A program larger than memory is no error.
    """
    check("estimate", local=(local, _LOCAL))
    return estimate_of(Simulator.of(local.program, mesh or local.mesh, options), local)


def estimate_of(simulator: Simulator, local: DeviceLocal) -> Estimate:
    """An estimate from a simulator that is kept for many lowerings of one program."""
    run, device = simulator.run(local), simulator.links.device
    excess = run.peak_bytes - device.hbm_bytes
    why = (
        f"{device.name} holds {bytes_text(device.hbm_bytes)}, {bytes_text(excess)} less than needed"
        if excess > 0
        else ""
    )
    return Estimate(
        step_s=run.step_s,
        peak_bytes=run.peak_bytes,
        flop=run.flop,
        bytes=run.hbm_bytes,
        serial_s=run.serial_s,
        overlapped_s=run.overlapped_s,
        compute_s=run.compute_s,
        collective_s=run.collective_s,
        argument_bytes=run.argument_bytes,
        output_bytes=run.output_bytes,
        collectives=collective_totals(run),
        fits=excess <= 0,
        why=why,
        device=device.name,
        unknown_ops=simulator.unknown_ops,
        simulation=run,
    )


def collective_totals(run: Simulation) -> dict[str, CollectiveTotal]:
    """Counts, seconds and bytes per kind; a collective in a loop counts as often as it runs."""
    totals = {kind: CollectiveTotal(0, 0.0, 0.0, 0.0) for kind in COLLECTIVE_KINDS[:5]}
    for step, trips, saved_s in collective_steps(run):
        totals[step.kind] = totals[step.kind].with_one(step, trips, saved_s)
    return totals


def collective_steps(run: Simulation) -> Iterator[tuple[StepCost, int, float]]:
    """(collective, how often it runs, seconds that a run saves by being combined with others) of each in a step."""
    program, place = run.local.program, run.local.placement
    scopes = [*program.op_scope[program.value_op[run.local.at_def]].tolist(), *place.scope.tolist()]
    for cost, scope, saved_s in zip([*run.plans[0], *run.plans[1]], scopes, saved_seconds(run).tolist(), strict=True):
        for step in cost.steps:
            yield step, int(program.scope_trips[scope]), saved_s


def saved_seconds(run: Simulation) -> np.ndarray:
    """float64[redistributions], those after ops first: what each saves per run by being combined with others.

    Only redistributions of a single collective are combined, so what is saved is that one's.
    """
    kind, subject = run.graph.nodes["kind"], run.graph.nodes["subject"]
    saved = np.zeros(len(run.plans[0]) + len(run.plans[1]))
    alone = np.array([cost.seconds + cost.copy_s for cost in (*run.plans[0], *run.plans[1])])
    for of, first in ((DEF_MOVE, 0), (USE_MOVE, len(run.plans[0]))):
        nodes = np.flatnonzero(kind == of)
        places = first + subject[nodes]
        saved[places] = alone[places] - run.node_s[nodes]
    combined = np.array([cost.combinable > 0 for cost in (*run.plans[0], *run.plans[1])], np.bool_)
    return np.where(combined, saved, 0.0)
