"""What holds the memory of a step that does not fit, and what would fit, in words and as code.

    memory is held by:
      24.8 GB  opt_state, 12.4 GB  params
       9.1 GB  model.py:31 jit(step)/attention/exp (4 arrays)
    with other programs, devices or state:
      2.31 s   31 GB  fits       ap.Recompute('blocks')
      2.40 s   22 GB  fits       ap.Microbatch({'batch': 0}, steps=4), ap.Recompute('blocks')
      1.20 s   41 GB  too large  ap.Mesh({'data': 16, 'model': 2}, device='a100_40gb')
               29 GB  fits       opt_state in bf16, such as optax.adam(..., mu_dtype=jnp.bfloat16): no more than that

Programs and meshes are priced with the named schedules alone. State in a narrower type is counted, not traced: half the
bytes of the f32 state of which no matmul reads anything.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autopart.api.programs.rewritings import Rewriting, rewritings
from autopart.api.programs.tried_programs import Setting, Tried, named_only, tried_program
from autopart.api.tactics.automatic import AutomaticPartition, SearchWarning
from autopart.api.tactics.microbatch import Microbatch
from autopart.api.tactics.recompute import Recompute
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tracing.trace import Traced
from autopart.base.units import bytes_text, seconds_text
from autopart.base.user_line import warn
from autopart.core.mesh import Mesh
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Elementwise
from autopart.core.program import Program
from autopart.costmodel.breakdown import top_buffers
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.hardware.devices import device

HELD = 64
"""The largest buffers, of which lines are made."""

LINES = 4
"""Source lines that are named."""


@dataclass(frozen=True)
class Change:
    """Another program or mesh: as code, as options of the command line, and what the step takes with it."""

    code: str
    options: Mapping[str, Any]
    estimate: Estimate

    @property
    def cost(self) -> str:
        """Seconds and bytes."""
        return f"{seconds_text(self.estimate.step_s)}, {bytes_text(self.estimate.peak_bytes)}"

    def __str__(self) -> str:
        found, fits = self.estimate, "fits     " if self.estimate.fits else "too large"
        return f"{seconds_text(found.step_s):>8}  {bytes_text(found.peak_bytes):>8}  {fits}  {self.code}"


def advice(estimate: Estimate, changes: Sequence[Change], memory_bytes: float) -> list[str]:
    """The lines; `changes` are what was tried, the likeliest first."""
    run = estimate.simulation
    if run is None:
        return []
    lines = ["memory is held by:", *(f"  {line}" for line in held_by(run)), "with other programs, devices or state:"]
    lines += [f"  {change}" for change in changes]
    name, narrower = narrower_state(run)
    if narrower:
        left = estimate.peak_bytes - narrower
        fits = "fits     " if left <= memory_bytes else "too large"
        lines.append(f"  {'':8}  {bytes_text(left):>8}  {fits}  {name} in bf16: {bytes_text(narrower)} less")
    return lines


def held_by(run: Simulation) -> list[str]:
    """Arguments by name and intermediate results by source line, with their bytes on one device."""
    program, settled = run.local.program, run.arrays.values["settled_bytes"]
    arguments: dict[str, float] = defaultdict(float)
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        arguments[name.partition("/")[0]] += float(settled[value])
    groups = sorted(arguments.items(), key=lambda item: -item[1])[:LINES]
    lines = [", ".join(f"{bytes_text(held):>8}  {name}" for name, held in groups)]
    places: dict[str, list[float]] = defaultdict(list)
    for row in top_buffers(run, HELD):
        if not row.what.startswith("argument"):
            places[row.where or row.what].append(row.bytes)
    largest = sorted(places.items(), key=lambda item: -sum(item[1]))[:LINES]
    arrays = lambda sizes: f"({len(sizes)} arrays)" if len(sizes) > 1 else ""  # noqa: E731
    return [*lines, *(f"{bytes_text(sum(sizes)):>8}  {where} {arrays(sizes)}".rstrip() for where, sizes in largest)]


def narrower_state(run: Simulation) -> tuple[str, float]:
    """(the names of f32 state that only elementwise ops read, half of its bytes on one device)."""
    program, settled = run.local.program, run.arrays.values["settled_bytes"]
    found: dict[str, float] = defaultdict(float)
    computed_with: set[str] = set()
    for argument in program.ties.values():
        value, name = program.arguments[argument], program.argument_names[argument].partition("/")[0]
        if not only_updated(program, value):
            computed_with.add(name)
        if program.type_of(value).dtype == "f32":
            found[name] += float(settled[value]) / 2
    state = [name for name in found if name not in computed_with]
    return ", ".join(state), sum(found[name] for name in state)


def only_updated(program: Program, value: int) -> bool:
    """True of an optimizer's state: each op that reads it, works element by element."""
    pointer, uses = program.users
    readers = program.use_op[uses[pointer[value] : pointer[value + 1]]]
    return all(isinstance(traits_of(program.spec(int(op))), Elementwise) for op in np.unique(readers))


def larger_meshes(mesh: Mesh) -> Iterator[tuple[str, Mesh]]:
    """The mesh with twice as many devices along each of its axes, as code."""
    for axis, size in mesh.shape.items():
        shape = {**mesh.shape, axis: 2 * size}
        yield f"ap.Mesh({shape!r}, device={mesh.device!r})", Mesh(shape, mesh.device, dict(mesh.links))


def _mesh_options(mesh: Mesh) -> dict[str, Any]:
    return {"over": ",".join(f"{axis}={size}" for axis, size in mesh.shape.items())}


# ---- what a search over one program says

LIKELY = {"microbatch": (1, 4), "recompute": ("blocks",)}
"""The programs that are tried for a search which was not asked to choose one, once nothing fits."""


def advised(traced: Traced, setting: Setting, scheduled: Scheduled, tried: Sequence[Tried]) -> Scheduled:
    """Warns of a search's result that does not fit, with what would; the search's report then has the lines."""
    estimate = scheduled.estimate
    place = next((i for i, row in enumerate(scheduled.reports) if "does_not_fit" in row.report), None)
    if place is None:
        return scheduled
    missing = scheduled.reports[place].report["does_not_fit"]
    search = setting.schedule[place - setting.before(scheduled)]
    if estimate is None or not isinstance(search, AutomaticPartition) or not _is_simulated(search, setting):
        warn("\n  ".join(missing), SearchWarning)
        return scheduled
    if estimate.fits:
        return scheduled
    memory_bytes = device(estimate.device).hbm_bytes
    changes = list(_changes(traced, setting, search, place - setting.before(scheduled), tried))
    lines = advice(estimate, changes, memory_bytes)
    warn("\n  ".join([f"{missing[0]}; why, and what would:", *lines]), SearchWarning)
    fitting = [(dict(c.options), c.cost) for c in changes if c.estimate.fits and c.options]
    reports = list(scheduled.reports)
    report = {**reports[place].report, "advice": lines, "advice_options": fitting}
    reports[place] = dataclasses.replace(reports[place], report=report)
    return dataclasses.replace(scheduled, reports=tuple(reports))


def _is_simulated(search: AutomaticPartition, setting: Setting) -> bool:
    """Whether the simulator alone said that nothing fits, so that it can say what would."""
    return search.cost_model is None and search.referee is None and setting.cost_model is None


def _changes(
    traced: Traced, setting: Setting, search: AutomaticPartition, place: int, tried: Sequence[Tried]
) -> Iterator[Change]:
    """Other programs, then other meshes, each with the named schedules; those that can be."""
    named = named_only(search.on_one_program())
    if not tried and not any(isinstance(tactic, Microbatch | Recompute) for tactic in setting.schedule):
        likely = rewritings(traced.program, dataclasses.replace(search, **LIKELY))
        tried = [tried_program(r, traced, setting, named, place) for r in likely if str(r)]
    for one in tried:
        if one.estimate is not None:
            yield Change(str(one.rewriting) or "the program as it is", one.rewriting.options, one.estimate)
    for code, mesh in larger_meshes(setting.mesh):
        larger = dataclasses.replace(setting, mesh=mesh)
        found = tried_program(Rewriting(None, None), traced, larger, named, place)
        if found.estimate is not None:
            yield Change(code, _mesh_options(mesh), found.estimate)
