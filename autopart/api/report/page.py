"""`Lowered.report`: a page that shows a partitioned program, in one file that needs no network.

    lowered.report("report.html")

    tactics            what each added                     memory    over program time, and what fills the peak
    baselines          named schedules beside the result   layouts   each argument drawn on the mesh, parts by host
    time               by class of op, collective, line    hardware  seconds by axis, roofline, the step over time
    trouble            what to do about conflicts, gathers search    cost against evaluations, the bound
    beside             another plan                        code      the plan to paste
    profile            of a run, beside the estimate

The frame is `page.html`, with `style.css` and `script.js`; sections are HTML made by `sections.py`. What is long (every
argument, the costliest ops) is data in the page, which the script filters and pages; the page's own text stays short
however large the program is. A Content-Security-Policy in the page forbids to load anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from autopart.api.compared.named_rows import NamedSchedules
from autopart.api.explained.metadata import Metadata
from autopart.api.explained.what_if import spec_text
from autopart.api.measured.profile import Profile
from autopart.api.report import hardware, sections
from autopart.api.report.drawn_layouts import layouts
from autopart.api.report.parts_of_hosts import hosts
from autopart.api.report.side_by_side import Other, side_by_side
from autopart.api.report.trouble import trouble
from autopart.api.tactics.schedule import Scheduled
from autopart.base.html import escaped, json_in_script, table_html
from autopart.base.quoting import one_line, short_place
from autopart.base.units import bytes_text, seconds_text
from autopart.base.written_file import write_text
from autopart.core.mesh import Mesh
from autopart.search.evaluation.cost import memory_bytes

MOST_OPS = 1000
"""Kernels and collectives in the page's data, the costliest of equal rows added up."""

MOST_NAMES = 20_000
"""Arguments and outputs in the page's data."""


@dataclass(frozen=True)
class Sheet:
    """What a page is about.

    tokens    in a step; None: as the inputs say
    named     named schedules, costed where no search did
    beside    metadata and estimate of another program
    devices   jax's, where the mesh has some: they say which host has which
    profile   of a run of the step
    """

    metadata: Metadata
    scheduled: Scheduled
    tokens: int | None = None
    named: NamedSchedules | None = None
    beside: Other | None = None
    devices: np.ndarray | None = None
    profile: Profile | None = None

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self.scheduled.partitioning.mesh


def head(sheet: Sheet) -> str:
    """The figures of a page and its tactics, without the page around them."""
    figures = sections.figures(sheet.metadata, sheet.scheduled, sheet.tokens)
    return table_html(["", f"over {sheet.mesh}"], figures) + sections.tactics(sheet.metadata)


def write_report(sheet: Sheet, path: str | Path) -> Path:
    """Writes the page; returns where it is. Raises `ArgumentError` where it cannot be written."""
    return write_text(path, report_page(sheet), "the report")


def report_page(sheet: Sheet) -> str:
    """The page as HTML."""
    metadata, scheduled = sheet.metadata, sheet.scheduled
    shown = [(key, title, html) for key, title, html in _sections(sheet) if html]
    links = "".join(f'<a href="#{key}">{escaped(title)}</a>' for key, title, _ in shown)
    body = "\n".join(f'<section id="{key}"><h2>{escaped(title)}</h2>{html}</section>' for key, title, html in shown)
    program = scheduled.partitioning.program
    mesh, device = scheduled.partitioning.mesh, metadata.device or "no device named"
    subtitle = (
        f"{program.op_count} ops, {len(program.arguments)} arguments, tactics: {len(metadata.tactics)}, on {device}"
    )
    return Template(_file("page.html")).substitute(
        title=escaped(f"Partitioned over {mesh}"),
        subtitle=escaped(subtitle),
        style=_file("style.css"),
        script=_file("script.js"),
        navigation=links,
        sections=body,
        data=json_in_script(_data(metadata, scheduled)),
    )


def _sections(sheet: Sheet) -> Iterator[tuple[str, str, str]]:
    """(key, title, HTML) of every section, in the page's order."""
    metadata, scheduled = sheet.metadata, sheet.scheduled
    estimate, program = scheduled.estimate, scheduled.partitioning.program
    in_bytes = memory_bytes(scheduled.partitioning.mesh)
    known = None if in_bytes == float("inf") else in_bytes
    yield "summary", "In short", sections.summary(metadata, scheduled, sheet.tokens)
    yield "beside", "Beside another plan", side_by_side(metadata, estimate, sheet.beside)
    yield "tactics", "Tactics", sections.tactics(metadata)
    yield "stages", "Stages", sections.stages(metadata, estimate)
    yield "baselines", "Beside named schedules", sections.baselines(metadata, sheet.named)
    yield "memory", "Memory", sections.memory(estimate, known)
    yield "time", "Time", sections.time(estimate)
    yield "profile", "Beside a profile", sheet.profile.html() if sheet.profile is not None else ""
    yield "axes", "Mesh axes and their wires", hardware.axes(estimate)
    yield "timeline", "The step over time", hardware.timeline(estimate)
    yield "roofline", "Roofline", hardware.roofline(estimate)
    yield "layouts", "Layouts", layouts(metadata, program)
    yield "hosts", "Which hosts hold what", hosts(metadata, program, sheet.mesh, sheet.devices)
    yield "trouble", "What stops or is left whole, and what to do", trouble(metadata)
    yield "search", "Search", sections.searches(metadata)
    yield "code", "The plan as code", sections.code(metadata)
    if estimate is not None and estimate.simulation is not None:
        yield "ops", "Costliest kernels and collectives", sections.ops()


def _data(metadata: Metadata, scheduled: Scheduled) -> dict[str, Any]:
    """The long tables of the page, as its script takes them."""
    program, estimate = scheduled.partitioning.program, scheduled.estimate
    names = zip(program.argument_names, program.arguments, strict=True)
    rows = [
        [one_line(name), str(t := program.type_of(value)), spec_text(metadata.in_specs[name]), bytes_text(t.bytes)]
        for name, value in list(names)[:MOST_NAMES]
    ]
    outputs = zip(metadata.out_specs.items(), program.outputs, strict=True)
    rows += [
        [one_line(name), str(t := program.type_of(value)), spec_text(spec), bytes_text(t.bytes)]
        for (name, spec), value in list(outputs)[: MOST_NAMES - len(rows)]
    ]
    left = len(program.arguments) + len(program.outputs) - len(rows)
    rows += [[f"and {left} more", "", "", ""]] if left > 0 else []
    data: dict[str, Any] = {"layouts": {"header": ["name", "type", "axes of each dim", "bytes"], "rows": rows}}
    if estimate is not None and estimate.simulation is not None:
        header = ["seconds", "times", "what", "belongs to", "where"]
        top = estimate.top(MOST_OPS).seconds
        cells = [[seconds_text(r.seconds), r.count, r.what, one_line(r.path), short_place(r.where)] for r in top]
        data["ops"] = {"header": header, "rows": cells}
    return data


def _file(name: str) -> str:
    return resources.files("autopart.api.report").joinpath(name).read_text(encoding="utf-8")
