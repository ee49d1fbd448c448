"""Two partitioned programs side by side: figures, then the arguments that lie otherwise.

            this      the other
step        1.05 s    1.31 s (+24.8 %)
peak        61 GB     80 GB
params/up   [-, model]   [data, -]
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from autopart.api.explained.metadata import Metadata
from autopart.api.explained.what_if import spec_text
from autopart.base.html import table_html
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text, seconds_text
from autopart.costmodel.estimate import Estimate

ROWS = 40
"""Kinds of arguments that are listed."""

Other = tuple[Metadata, Estimate | None]


def side_by_side(metadata: Metadata, estimate: Estimate | None, other: Other | None) -> str:
    """The tables; nothing without another."""
    if other is None:
        return ""
    beside, its = other
    figures = [["schedule", _tactics(metadata), _tactics(beside)], ["mesh", _mesh(metadata), _mesh(beside)]]
    if estimate is not None and its is not None:
        mine, theirs = _figures(estimate), _figures(its)
        figures += [[what, mine.get(what, "-"), theirs.get(what, "-")] for what in {**mine, **theirs}]
    moved: dict[tuple[str, str, str], int] = {}
    for name, spec in metadata.in_specs.items():
        there = beside.in_specs.get(name)
        if there != spec:
            key = (re.sub(r"\d+", "*", one_line(name)), spec_text(spec), spec_text(there) if there is not None else "-")
            moved[key] = moved.get(key, 0) + 1
    rows = [
        [f"{name} ({n} x)" if n > 1 else name, here, there] for (name, here, there), n in list(moved.items())[:ROWS]
    ]
    left = len(moved) - ROWS
    note = f'<p class="note">and {left} more kinds.</p>' if left > 0 else ""
    header = ["", "this", "the other"]
    layouts = f'<h3>Arguments that lie otherwise</h3><div class="scroll text">{table_html(header, rows)}</div>{note}'
    same = "<p>All arguments lie alike.</p>"
    return f'<div class="scroll text">{table_html(header, figures)}</div>{layouts if rows else same}'


def _tactics(metadata: Metadata) -> str:
    return ", ".join(one_line(tactic.name) for tactic in metadata.tactics) or "replicated"


def _mesh(metadata: Metadata) -> str:
    return ", ".join(f"{one_line(axis)}:{size}" for axis, size in metadata.mesh.items()) + f" of {metadata.device}"


def _figures(estimate: Estimate) -> Mapping[str, str]:
    moved = {kind: f"{seconds_text(t.seconds)}, {t.count} x" for kind, t in estimate.collectives.items() if t.count}
    fits = "" if estimate.fits else ", does not fit"
    step, compute = seconds_text(estimate.step_s), seconds_text(estimate.compute_s)
    return {"step": step, "compute": compute, "peak": bytes_text(estimate.peak_bytes) + fits, **moved}
