"""A profile of a step beside its estimate, by class of kernel, by collective and by source line.

    with jax.profiler.trace("profile"):
        state = jax.block_until_ready(compiled(state, batch))
    print(ap.calibrate(trace="profile", of=lowered))

                                    estimated    measured
    kernels       matmul               2.9 ms      3.4 ms
    collectives   all_reduce<data>     1.1 ms      1.3 ms
    lines         model.py:12          0.8 ms      0.9 ms

The profile is read by jax's public reader, and its events meet the instructions of the program as it is compiled here.
An instruction takes the mean of its events, a collective that of the device that waited least for the others, and
counts as often as the text runs it: how many steps and devices the profile has plays no part.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax

from autopart.api.report.where_time_goes import by_class, by_line
from autopart.base.errors import ArgumentError
from autopart.base.html import table_html
from autopart.base.quoting import one_line
from autopart.base.units import seconds_text
from autopart.core.mesh import Mesh
from autopart.core.ops.rule import traits_named
from autopart.costmodel.estimate import Estimate, collective_steps
from autopart.costmodel.xla.gpu_kernels import runs
from autopart.costmodel.xla.hlo_collectives import started_by
from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo

_MODULE = re.compile(r"^HloModule ([\w.\-]+)")
_NUMBERED = re.compile(r"^(\d+) (?:\"(.*)\"|\{(.*)\})$")
_FIELD = re.compile(r"(\w+)=(\d+)")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_WRITTEN = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_LIBRARY = re.compile('custom_call_target="[^"]*(conv|gemm|matmul)', re.IGNORECASE)
_PRODUCTS = {"dot": "matmul", "gemm": "matmul", "matmul": "matmul", "convolution": "convolution", "conv": "convolution"}
_KINDS = {"broadcast": "broadcast_in_dim", "copy": "transpose", "bitcast": "reshape"}
_OWN = Path(__file__).parents[1]
_SHOWN = 12
"""Lines that are shown, those with the most measured seconds."""


class Beside(NamedTuple):
    """One row: "kernels", "collectives" or "lines", what of them, and seconds of a step."""

    group: str
    what: str
    estimated_s: float
    measured_s: float


@dataclass(frozen=True)
class Profile:
    """What `ap.calibrate(trace=...)` found: rows of each group, the most measured first; each group adds up."""

    rows: tuple[Beside, ...]

    def total(self, group: str) -> tuple[float, float]:
        """Seconds of a group, estimated and measured."""
        rows = [row for row in self.rows if row.group == group]
        return sum(row.estimated_s for row in rows), sum(row.measured_s for row in rows)

    def _cells(self) -> Iterator[tuple[str, str, str, str]]:
        for group in dict.fromkeys(row.group for row in self.rows):
            shown = [row for row in self.rows if row.group == group][:_SHOWN]
            for name, what, *seconds in ((group, "", *self.total(group)), *(("", *row[1:]) for row in shown)):
                estimated, measured = map(seconds_text, seconds)
                yield name, what, estimated, measured

    def html(self) -> str:
        """The rows as a table."""
        return table_html(["", "", "estimated", "measured"], self._cells())

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        rows = [("", "", "estimated", "measured"), *self._cells()]
        return "\n".join(f"{a:<12} {one_line(b):<32} {c:>10} {d:>10}" for a, b, c, d in rows)


def profile_beside(trace: str | Path, estimate: Estimate, text: str, mesh: Mesh) -> Profile:
    """The profile in the folder or file `trace` beside the estimate of a program, of which `text` is what ran.

    Raises `ArgumentError` where there is no profile of this program.
    """
    module = OptimisedHlo(text)
    took = _seconds_by_op(Path(trace), text, {name for _, name in module.types})
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    line_of = _Lines(text)
    for i, times in module.ran():
        collective = started_by(module, i, mesh)
        if i.name not in took or (collective is None and not runs(i)):
            continue
        by_device = took[i.name]
        seconds = times * (min(by_device) if collective else statistics.mean(by_device))
        if collective is not None:
            found["collectives"][f"{collective[0]}<{','.join(name for name, _ in collective[1])}>"] += seconds
        else:
            found["kernels"][_class_of(module, i)] += seconds
            found["lines"][line_of(i)] += seconds
    return Profile(tuple(_rows(_estimated(estimate), found)))


def _rows(estimated: Mapping[str, Mapping[str, float]], found: Mapping[str, Mapping[str, float]]) -> Iterator[Beside]:
    for group, rows in estimated.items():
        both = {what: (s, found[group].get(what, 0.0)) for what, s in rows.items()}
        both |= {what: (0.0, s) for what, s in found[group].items() if what not in both}
        ranked = sorted(both.items(), key=lambda row: (-row[1][1], -row[1][0]))
        yield from (Beside(group, what, *seconds) for what, seconds in ranked if any(seconds))


def _estimated(estimate: Estimate) -> dict[str, Mapping[str, float]]:
    run = estimate.simulation
    assert run is not None
    moved = defaultdict[str, float](float)
    for step, trips, saved_s in collective_steps(run):
        moved[f"{step.kind}<{','.join(step.mesh_axes)}>"] += trips * (step.seconds - saved_s)
    return {"kernels": by_class(run), "collectives": moved, "lines": {k: s for k, (s, _) in by_line(run).items()}}


def _class_of(module: OptimisedHlo, i: Instruction) -> str:
    """What a kernel computes, by the classes of the estimate: its product, else what its root is."""
    inside = module.inside(i)
    for one in (i, *inside):
        library = _LIBRARY.search(one.line)
        if library or one.kind in _PRODUCTS:
            return _PRODUCTS[library.group(1).lower() if library else one.kind]
    root = next((one for one in inside if one.line.lstrip().startswith("ROOT")), i)
    kind = _KINDS.get(root.kind, root.kind.replace("-", "_"))
    return type(traits_named(kind)).__name__.lower()


class _Lines:
    """`file.py:12` of an instruction, by its metadata: its innermost stack frame, or as older compilers write it.

    What autopart adds to a program has no line.
    """

    def __init__(self, text: str):
        tables: dict[str, dict[int, str]] = defaultdict(dict)
        name = ""
        for line in text.splitlines():
            if line.startswith(("%", "ENTRY")):
                break
            numbered = _NUMBERED.match(line)
            if numbered:
                tables[name][int(numbered[1])] = numbered[2] or numbered[3] or ""
            elif line:
                name = line
        self.tables = tables

    def __call__(self, i: Instruction) -> str:
        if written := _WRITTEN.search(i.line):
            return f"{Path(written[1]).name}:{written[2]}"
        if not (frame := _FRAME.search(i.line)):
            return ""
        at = _FIELD.findall(self.tables["StackFrames"].get(int(frame[1]), ""))
        place = dict(_FIELD.findall(self.tables["FileLocations"].get(int(dict(at).get("file_location_id", 0)), "")))
        file = self.tables["FileNames"].get(int(place.get("file_name_id", 0)), "")
        return f"{Path(file).name}:{place['line']}" if file and _OWN not in Path(file).parents else ""


def _seconds_by_op(trace: Path, text: str, ops: set[str]) -> dict[str, list[float]]:
    """op -> mean seconds of an event on each device, of the run program of this name whose events are most of `ops`."""
    named = _MODULE.match(text)
    found: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list[float]))
    for path in [trace] if trace.is_file() else sorted(trace.rglob("*.xplane.pb")):
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for event in (event for line in plane.lines for event in line.events):
                stats = dict(event.stats)
                op = str(stats.get("hlo_op", "") or event.name.split(" = ")[0].lstrip("%"))
                if op in ops and str(stats.get("hlo_module", named and named[1])) == (named and named[1]):
                    device = f"{plane.name} {stats.get('device_ordinal', '')}"
                    found[str(stats.get("program_id", ""))][op, device].append(event.duration_ns * 1e-9)
    if not found:
        raise ArgumentError(f"no profile of this program in {trace}", hint="jax.profiler.trace(...) around its calls")
    most = max(found.values(), key=lambda events: sum(map(len, events.values())))
    means: dict[str, list[float]] = defaultdict(list)
    for (op, _), seconds in most.items():
        means[op].append(statistics.mean(seconds))
    return means
