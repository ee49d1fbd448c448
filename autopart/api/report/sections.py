"""The sections of a report, each from the metadata and the estimate, as HTML; "" where there is nothing to show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autopart.api.compared.named_rows import NamedSchedule, NamedSchedules
from autopart.api.explained.metadata import Metadata, TacticReport
from autopart.api.report.charts import Bar, area, bars, chart, falling, highest_of_each
from autopart.api.report.where_time_goes import by_class, by_collective, by_line
from autopart.api.tactics.schedule import Scheduled
from autopart.api.tactics.stages import Stages
from autopart.base.errors import PartitionError
from autopart.base.html import escaped, lines_html, table_html
from autopart.base.quoting import short_place
from autopart.base.units import bytes_text, seconds_text
from autopart.costmodel.breakdown import BufferRow
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.compiled.slots import op_of
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.flop_shares import percent
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.utilization import computes_again, tokens_found, utilization
from autopart.spmd.device_local import COLLECTIVES

HELD = 5000
"""The largest buffers, of which the rows of the peak are made."""

ROWS = 12
"""Rows of a ranking: source lines, buffers."""

CODE_BYTES = 200_000
"""Of a longer schedule the page shows the beginning."""


def summary(metadata: Metadata, scheduled: Scheduled, tokens: int | None = None) -> str:
    """The figures that matter, as tiles, and what is to be said of them."""
    found = figures(metadata, scheduled, tokens)
    inner = "".join(f'<div class="tile"><b>{escaped(a)}</b><span>{escaped(b)}</span></div>' for a, b in found)
    notes = (*(metadata.tactics[-1].notes if metadata.tactics else ()), *metadata.remarks)
    return f'<div class="tiles">{inner}</div>{lines_html(notes)}'


def figures(metadata: Metadata, scheduled: Scheduled, tokens: int | None = None) -> list[tuple[str, str]]:
    """(figure, what it is): the step, its memory, MFU, tokens a second, collectives, what each axis divides."""
    estimate, count = scheduled.estimate, scheduled.device_local.collectives()
    tiles = [*_throughput(scheduled, tokens), (str(sum(count[k] for k in COLLECTIVES)), "collectives in a step")]
    if estimate is not None:
        fits = "fits" if estimate.fits else f"does not fit: {estimate.why}"
        tiles = [
            (seconds_text(estimate.step_s), "a step"),
            (bytes_text(estimate.peak_bytes), f"at the peak; {fits}"),
            *tiles,
        ]
    return tiles + [(percent(share), f"of the flop divided by {a}") for a, share in metadata.flop_divided.items()]


def _throughput(scheduled: Scheduled, tokens: int | None) -> list[tuple[str, str]]:
    """Tiles with the share of the devices' peak, and tokens a second where there are any."""
    estimate, program, mesh = scheduled.estimate, scheduled.partitioning.program, scheduled.partitioning.mesh
    if estimate is None or mesh.device is None or estimate.step_s <= 0:
        return []
    share = utilization(program, device(mesh.device), mesh.size, estimate.step_s)
    what = "HFU, with what is computed again" if computes_again(program) else "MFU"
    tiles = [(percent(share), what)] if share else []
    count, where = (tokens, "as told") if tokens else tokens_found(program) or (0, "")
    return [*tiles, (f"{count / estimate.step_s:,.0f}", f"tokens/s, {count:,} in a step ({where})")] if count else tiles


def tactics(metadata: Metadata) -> str:
    """A row per tactic."""
    if not metadata.tactics:
        return "<p>No tactic: every array is whole on every device.</p>"
    header = ["tactic", "actions", *COLLECTIVES, "step", "peak"]
    rows = [
        [
            t.name, len(t.actions), *(t.collectives[k] for k in COLLECTIVES),
            _seconds(t.step_s), _bytes(t.peak_bytes),
        ]
        for t in metadata.tactics
    ]  # fmt: skip
    return f'<p>The program after each tactic.</p><div class="scroll">{table_html(header, rows)}</div>'


def stages(metadata: Metadata, estimate: Estimate | None) -> str:
    """Who works when, where a tactic wrote stages, and what each needs of memory: all need as much."""
    found = [Stages.of(t.report["pipeline"]) for t in metadata.tactics if "pipeline" in t.report]
    peak = "" if estimate is None else f"{bytes_text(estimate.peak_bytes)} at the peak"
    return "".join(each.html(peak) for each in found if each is not None)


def _seconds(value: float | None) -> str:
    return "-" if value is None else seconds_text(value)


def _bytes(value: float | None) -> str:
    return "-" if value is None else bytes_text(value)


def baselines(metadata: Metadata, named: NamedSchedules | None = None) -> str:
    """What each search found, beside the named schedules that it costed; or the plan beside those costed for it."""
    if named is None:
        return "".join(map(_compared, metadata.tactics))
    last = metadata.tactics[-1] if metadata.tactics else None
    drawn = [_baseline({**vars(row), "rank": 0}, "") for row in named]
    if last is not None and last.step_s is not None:
        drawn.insert(0, Bar("this plan", last.step_s, f"{_seconds(last.step_s)}, {_bytes(last.peak_bytes)}", "found"))
    said = f"<p>{escaped(_key(named.rows))}The best first: by memory that is missing, then by seconds.</p>"
    return said + _first_bars(drawn)


def _first_bars(drawn: Sequence[Bar]) -> str:
    """The first bars, the others folded."""
    rest = drawn[ROWS:]
    folded = f"<details><summary>{len(rest)} more</summary>{bars(rest)}</details>" if rest else ""
    return bars(drawn[:ROWS]) + folded


def _key(rows: Sequence[NamedSchedule]) -> str:
    return "" if all(row.fits for row in rows) else "Orange schedules do not fit the device's memory. "


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
    return f"<h3>{escaped(tactic.name)}, beside named schedules</h3>{said}{_first_bars(drawn)}{remarks}"


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
    rows = grouped_buffers(estimate.top(HELD, kind="buffers").bytes)
    buffers = [
        [bytes_text(count * size), f"{count} x {bytes_text(size)}" if count > 1 else "", what, path, where]
        for count, size, what, path, where in rows[:ROWS]
    ]
    at = int(run.live.argmax())
    program = run.local.program
    where = short_place(program.where(min(op_of(at), program.op_count - 1)))
    known = "" if memory_bytes is None else f" The device has {bytes_text(memory_bytes)}."
    table = table_html(["bytes", "of", "what", "belongs to", "made at"], buffers)
    return (
        f"<p>Program order from left to right.{escaped(known)} The peak is{escaped(f' at {where}' if where else '')}:"
        f'</p>{drawing}<h3>What fills it</h3><div class="scroll text">{table}</div>'
    )


def grouped_buffers(buffers: Sequence[BufferRow]) -> list[tuple[int, float, str, str, str]]:
    """(how many, bytes of each, what, whose, where) of buffers alike but for a number, the most bytes first."""
    groups: dict[tuple[float, str, str, str], int] = {}
    for row in buffers:
        place, _, scope = short_place(row.where).partition(" ")
        where = f"{place} {_numbers_away(scope)}".rstrip()
        key = row.bytes, row.what, _numbers_away(row.path), where
        groups[key] = groups.get(key, 0) + 1
    paths = {_numbers_away(row.path): row.path for row in buffers}
    found = [
        (count, size, what, path if count > 1 else paths[path], where)
        for (size, what, path, where), count in groups.items()
    ]
    return sorted(found, key=lambda row: -row[0] * row[1])


def _numbers_away(text: str) -> str:
    return re.sub(r"\d+", "*", text)


def _peak_place(run: Simulation) -> float:
    return min(70.0, 100 * int(run.live.argmax()) / max(1, len(run.live)))


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
