"""The sections of a report, each from the metadata and the estimate, as HTML; "" where there is nothing to show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autopart.api.explained.what_if import spec_text
from autopart.api.metadata import Metadata, TacticReport
from autopart.api.report.charts import Bar, area, bars, chart, falling, highest_of_each
from autopart.api.report.mesh_drawing import mesh_drawing
from autopart.api.report.where_time_goes import by_class, by_collective, by_line
from autopart.core.errors import PartitionError
from autopart.core.html import escaped, lines_html, table_html
from autopart.core.program import Program
from autopart.core.quoting import one_line, short_place
from autopart.core.units import bytes_text, seconds_text
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.flop_shares import percent
from autopart.costmodel.simulator.simulator import Simulation
from autopart.costmodel.simulator.slots import op_of
from autopart.spmd.device_local import COLLECTIVES, DeviceLocal

LAYOUTS_DRAWN = 48
"""Groups of alike arguments that are drawn; the table below has every argument."""

ROWS = 12
"""Rows of a ranking: source lines, buffers."""

CODE_BYTES = 200_000
"""Of a longer schedule the page shows the beginning."""


def summary(metadata: Metadata, estimate: Estimate | None, local: DeviceLocal) -> str:
    """The figures that matter, as tiles."""
    count = local.collectives()
    tiles = [(str(sum(count[k] for k in COLLECTIVES)), "collectives in a step")]
    if estimate is not None:
        fits = "fits" if estimate.fits else f"does not fit: {estimate.why}"
        tiles = [
            (seconds_text(estimate.step_s), "a step"),
            (bytes_text(estimate.peak_bytes), f"at the peak; {fits}"),
            *tiles,
        ]
    tiles += [(percent(share), f"of the flop divided by {axis}") for axis, share in metadata.flop_divided.items()]
    inner = "".join(f'<div class="tile"><b>{escaped(a)}</b><span>{escaped(b)}</span></div>' for a, b in tiles)
    notes = metadata.tactics[-1].notes if metadata.tactics else ()
    return f'<div class="tiles">{inner}</div>{lines_html(notes)}'


def tactics(metadata: Metadata) -> str:
    """A row per tactic."""
    if not metadata.tactics:
        return "<p>No tactic: every array is whole on every device.</p>"
    header = ["tactic", "actions", *COLLECTIVES, "step", "peak"]
    rows = [
        [
            t.name, len(t.actions), *(t.collectives[k] for k in COLLECTIVES),
            "-" if t.step_s is None else seconds_text(t.step_s),
            "-" if t.peak_bytes is None else bytes_text(t.peak_bytes),
        ]
        for t in metadata.tactics
    ]  # fmt: skip
    return f'<p>The program after each tactic.</p><div class="scroll">{table_html(header, rows)}</div>'


def baselines(metadata: Metadata) -> str:
    """What each search found, beside the named schedules that it costed."""
    return "".join(map(_compared, metadata.tactics))


def _compared(tactic: TacticReport) -> str:
    rows: Sequence[Mapping[str, Any]] = tactic.report.get("baselines", ())
    best = tactic.report.get("best")
    if not rows or best is None:
        return ""
    found = {"name": f"{tactic.name} found", **best}
    ranked = sorted(rows, key=lambda row: row["rank"])
    drawn = [_baseline(found, "found"), *(_baseline(row, "") for row in ranked)]
    remarks = lines_html(tactic.report.get("remarks", ()))
    key = "" if all(row["fits"] for row in rows) else "Orange schedules do not fit the device's memory. "
    said = f"<p>{escaped(key)}The best first: by memory that is missing, then by seconds.</p>"
    return f"<h3>{escaped(tactic.name)}, beside named schedules</h3>{said}{bars(drawn)}{remarks}"


def _baseline(row: Mapping[str, Any], style: str) -> Bar:
    fits = "" if row["fits"] else ", does not fit"
    text = f"{seconds_text(row['step_s'])}, {bytes_text(row['peak_bytes'])}{fits}"
    return Bar(row["name"], row["step_s"], text, style if row["fits"] else f"{style} second")


def time(estimate: Estimate | None) -> str:
    """Seconds by class of op, by collective and by source line."""
    if estimate is None or estimate.simulation is None:
        return ""
    run = estimate.simulation
    classes = [Bar(name, s, seconds_text(s)) for name, s in by_class(run).items()]
    kinds = [
        Bar(kind, s, f"{seconds_text(s)}, {count} x; one by one {seconds_text(alone)}", "second")
        for kind, (s, alone, count) in by_collective(estimate).items()
    ]
    lines = list(by_line(run).items())
    ranked = [
        Bar(line or "no source line", sum(s), _split(*s), "second" if s[1] > s[0] else "") for line, s in lines[:ROWS]
    ]
    if lines[ROWS:]:
        rest = tuple(sum(s[i] for _, s in lines[ROWS:]) for i in (0, 1))
        ranked.append(Bar(f"{len(lines) - ROWS} other lines", sum(rest), _split(*rest)))
    return (
        f"<p>Kernels {escaped(seconds_text(run.compute_s))}, collectives {escaped(seconds_text(run.collective_s))}: "
        f"{escaped(seconds_text(run.serial_s))} one after the other, {escaped(seconds_text(run.overlapped_s))} with "
        "collectives beside kernels that do not need them. Classes and kinds add up to the first. A compiler runs "
        "small reductions as one: seconds are those that are left, and one by one what they would take alone.</p>"
        f"<h3>Kernels, by what they compute</h3>{bars(classes)}"
        + (f"<h3>Collectives, as they run</h3>{bars(kinds)}" if kinds else "")
        + f"<h3>By source line</h3>{bars(ranked)}"
    )


def _split(kernels: float, collectives: float) -> str:
    moved = f", {seconds_text(collectives)} of it collectives" if collectives > 0 else ""
    return f"{seconds_text(kernels + collectives)}{moved}"


def memory(estimate: Estimate | None, memory_bytes: float | None) -> str:
    """Live memory over program time, and what fills the peak."""
    if estimate is None or estimate.simulation is None:
        return ""
    run = estimate.simulation
    fixed = run.argument_bytes + run.output_bytes
    limit = memory_bytes if memory_bytes and memory_bytes < 2.5 * run.peak_bytes else None
    top = 1.08 * max(run.peak_bytes, limit or 0.0, 1.0)
    labels = [(f"peak {bytes_text(run.peak_bytes)}", f"left:{_peak_place(run):.0f}%;top:2px"),
              (f"arguments and outputs {bytes_text(fixed)}", "left:4px;bottom:4px")]  # fmt: skip
    if limit is not None:
        labels.append((f"memory {bytes_text(limit)}", f"right:4px;top:{max(0.0, 98 - 100 * limit / top):.0f}%"))
    says = f"live memory over the program, {bytes_text(run.peak_bytes)} at the peak"
    drawing = chart(area(highest_of_each(run.live), fixed, top, limit), labels, says)
    buffers = [
        [bytes_text(row.bytes), row.what, row.path, short_place(row.where)]
        for row in estimate.top(ROWS, kind="buffers").bytes
    ]
    at = int(run.live.argmax())
    program = run.local.program
    where = short_place(program.where(min(op_of(at), program.op_count - 1)))
    known = "" if memory_bytes is None else f" The device has {bytes_text(memory_bytes)}."
    table = table_html(["bytes", "what", "belongs to", "made at"], buffers)
    return (
        f"<p>Program order from left to right.{escaped(known)} The peak is{escaped(f' at {where}' if where else '')}:"
        f'</p>{drawing}<h3>What fills it</h3><div class="scroll text">{table}</div>'
    )


def _peak_place(run: Simulation) -> float:
    return min(70.0, 100 * int(run.live.argmax()) / max(1, len(run.live)))


def layouts(metadata: Metadata, program: Program) -> str:
    """Where each argument lives: groups of arguments that are alike, drawn on the mesh."""
    groups: dict[tuple[str, str, Any], list[str]] = {}
    for name, value in zip(program.argument_names, program.arguments, strict=True):
        key = re.sub(r"\d+", "*", name), str(program.type_of(value)), metadata.in_specs[name]
        groups.setdefault(key, []).append(name)
    sizes, names = list(metadata.mesh.values()), list(metadata.mesh)
    drawn = [_layout(key, members, sizes, names) for key, members in list(groups.items())[:LAYOUTS_DRAWN]]
    left = len(groups) - LAYOUTS_DRAWN
    note = f'<p class="note">and {left} more groups: the table has every argument.</p>' if left > 0 else ""
    return (
        f"<p>A square is a device of the mesh {escaped(_mesh_text(metadata))}: the first axis downwards, the others to "
        "the right. Devices of one colour hold the same part; grey devices hold all of it.</p>"
        f'<div class="layouts">{"".join(drawn)}</div>{note}'
        '<h3>Every argument and output</h3><div data-table="layouts"></div>'
    )


def _layout(key: tuple[str, str, Any], members: Sequence[str], sizes: Sequence[int], names: Sequence[str]) -> str:
    pattern, type_, spec = key
    named = members[0] if len(members) == 1 else f"{pattern} ({len(members)} x)"
    return (
        f'<div class="layout">{mesh_drawing(sizes, names, spec)}<div><b>{escaped(named)}</b><br>'
        f"<code>{escaped(type_)}</code><br><code>{escaped(spec_text(spec))}</code></div></div>"
    )


def _mesh_text(metadata: Metadata) -> str:
    return "{" + ", ".join(f"{one_line(name)}:{size}" for name, size in metadata.mesh.items()) + "}"


def trouble(metadata: Metadata) -> str:
    """Conflicts with what each way out costs, gathers nobody asked for, ops without a rule, what is replicated."""
    parts: list[str] = []
    for conflict in metadata.conflicts[:ROWS]:
        head, *ways = conflict.lines()
        parts.append(f"<p>Conflict: {escaped(head)}</p>{lines_html(way.strip() for way in ways)}")
    if len(metadata.conflicts) > ROWS:
        parts.append(f'<p class="note">and {len(metadata.conflicts) - ROWS} more conflicts.</p>')
    blocked = metadata.tactics[-1].unpartitioned if metadata.tactics else {}
    if blocked:
        said = [f"{kind}, {len(where)} x, the first at {short_place(where[0])}" for kind, where in blocked.items()]
        parts.append(f"<h3>Ops that block propagation</h3>{lines_html(said[:ROWS])}")
    if metadata.gathered:
        rows = sorted(metadata.gathered, key=lambda row: -row.bytes)[:ROWS]
        table = table_html(
            ["bytes", "op", "axis", "why", "where"],
            ([bytes_text(r.bytes), r.kind, r.axis, r.reason, short_place(r.where)] for r in rows),
        )
        more = f" The {ROWS} largest of {len(metadata.gathered)}." if len(metadata.gathered) > ROWS else ""
        parts.append(f'<h3>Gathered for ops that need it whole</h3><p>{more}</p><div class="scroll text">{table}</div>')
    if metadata.replicated:
        parts.append(f"<h3>Left replicated, and why</h3>{lines_html(metadata.replicated[:ROWS])}")
    return "".join(parts)


def searches(metadata: Metadata) -> str:
    """The best cost so far over the evaluations of each search."""
    return "".join(map(_progress, metadata.tactics))


def _progress(tactic: TacticReport) -> str:
    report = tactic.report
    history = [(float(n), float(score)) for n, score in report.get("history", ()) if math.isfinite(score)]
    if not history or "start" not in report:
        return ""
    bound = report.get("lower_bound")
    start = float(report["start"]["score"])
    points = [(0.0, start), *history] if math.isfinite(start) else history
    last = float(max(report["evaluations"], points[-1][0]))
    finish = points[-1][1]
    top = 1.05 * min(points[0][1], 4 * finish)
    low = 0.0 if bound is None else min(0.95 * float(bound), finish)
    labels = [
        (f"best {finish:.4g} after {int(points[-1][0])} evaluations", "right:4px;top:2px"),
        (f"{int(last)} evaluations", "right:4px;bottom:4px"),
    ]
    if bound is not None:
        labels.append((f"no schedule is below {bound:.4g} (gap {100 * report['gap']:.3g} %)", "left:4px;bottom:4px"))
    says = f"the best cost so far falls from {start:.4g} to {finish:.4g} in {int(last)} evaluations"
    cut = "" if points[0][1] <= 4 * finish else f" The line begins at {points[0][1]:.4g}, above the picture."
    seconds = f"{report['evaluations']} evaluations in {report['seconds']:.3g} s by {report['optimizer']}."
    drawing = chart(falling(points, last, low, top, bound), labels, says)
    return f"<h3>{escaped(tactic.name)}</h3><p>{escaped(seconds + cut)} Cost is the objective.</p>{drawing}"


def code(metadata: Metadata) -> str:
    """The plan as code to paste."""
    try:
        text = metadata.as_schedule()
    except PartitionError as error:
        return f"<p>{escaped(error.what)}: {escaped(error.why)}</p>"
    shown = text[:CODE_BYTES]
    cut = "" if shown == text else f'<p class="note">The first {CODE_BYTES} of {len(text)} characters.</p>'
    lines = "\n".join(map(escaped, shown.split("\n")))
    return (
        '<div class="controls"><button data-copy="schedule" hidden>copy</button></div>'
        f'<pre id="schedule">import autopart as ap\n\n{lines}</pre>{cut}'
    )


def ops() -> str:
    """The costliest kernels and collectives: a table that the page's script pages."""
    return '<div data-table="ops"></div>'
