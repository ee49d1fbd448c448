"""Sections on what a step makes of its hardware: seconds per axis and wire, roofline of kernels, the step over time.

flop/s |        ________ peak           a dot is a kernel, at its flop over its bytes (across) and over its
       |      /. o                      seconds (up), both logarithmic; larger dots take more of the step
       |    /  .
       |  /  HBM
        ------------------ flop / byte
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.api.report.charts import HEIGHT, WIDTH, chart, drawing
from autopart.api.report.where_time_goes import class_names
from autopart.base.html import escaped, table_html
from autopart.base.quoting import short_place
from autopart.base.units import bytes_text, seconds_text
from autopart.costmodel.breakdown import node_text
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.estimate import Estimate
from autopart.costmodel.flop_shares import percent
from autopart.costmodel.utilization import Rooflines, rooflines, seconds_by_axis, wires

LOOKED_AT = 3000
"""Kernels of which the roofline is made, those with the most seconds."""

ROWS = 8
"""Kinds of kernels that the table below it lists."""

COLUMNS = 500
"""Moments at which it is looked which kernel and which collective run."""

COLOURS = 8
"""Colours of the timeline's classes; further ones share the last."""


def axes(estimate: Estimate | None) -> str:
    """Seconds of the collectives over each mesh axis, and the wires they take."""
    if estimate is None or estimate.simulation is None:
        return ""
    run = estimate.simulation
    totals = seconds_by_axis(run)
    if not totals:
        return "<p>The step has no collective.</p>"
    rows = [
        [
            ", ".join(names), wires(run, names), seconds_text(t.seconds), percent(t.seconds / run.serial_s), t.count,
            bytes_text(t.bytes), f"{t.bytes / t.seconds / 1e9:.3g} GB/s" if t.seconds > 0 else "-",
        ]
        for names, t in totals.items()
    ]  # fmt: skip
    table = table_html(["axis", "wires", "seconds", "of the step", "times", "bytes", "rate"], rows)
    return (
        "<p>Bytes are those of a collective's larger side on one device. A collective over two axes has a row of its "
        f'own.</p><div class="scroll">{table}</div>'
    )


def roofline(estimate: Estimate | None) -> str:
    """The kernels beside the roofline of their device, and those that take most with their share of it."""
    if estimate is None or estimate.simulation is None:
        return ""
    run = estimate.simulation
    found = rooflines(run)
    groups = _alike(run, found)
    if not groups:
        return ""
    text = f"Products run at {percent(found.product_share())} of the device's peak. " if found.is_product.any() else ""
    rows = [
        [
            seconds_text(g.seconds), f"{g.count} x", _rate(g),
            g.what, g.where,
        ]
        for g in groups[:ROWS]
    ]  # fmt: skip
    table = table_html(["seconds", "kernels", "rate", "what", "where"], rows)
    return (
        f"<p>{escaped(text)}A dot is kernels that are alike: across, their flop for each byte through HBM; up, their "
        "flop a second; both logarithmic, and larger where they take more of the step. The line is what the device "
        "could do: HBM's bandwidth, then its peak.</p>"
        f'{_dots(run, found, groups)}<div class="scroll text">{table}</div>'
    )


def _rate(kernels: Alike) -> str:
    return f"{percent(kernels.share)} of {'peak' if kernels.is_product else 'HBM'}" if kernels.share > 1e-3 else "-"


@dataclass(frozen=True)
class Alike:
    """Kernels of one text at one line: their seconds in a step, and the rates of the first."""

    what: str
    where: str
    seconds: float
    count: int
    flop_per_s: float
    flop_per_byte: float
    share: float
    is_product: bool


def _alike(run: Simulation, found: Rooflines) -> list[Alike]:
    groups: dict[tuple[str, str], list[int]] = {}
    for k in np.argsort(-found.seconds, kind="stable")[:LOOKED_AT].tolist():
        what, _, _, where, _ = node_text(run, int(found.node[k]))
        groups.setdefault((what, re.sub(r"\d+", "*", where)), []).append(k)
    rows = [
        Alike(
            what, short_place(node_text(run, int(found.node[of[0]]))[3]), float(found.seconds[of].sum()), len(of),
            float(found.flop_per_s[of[0]]), float(found.flop_per_byte[of[0]]), float(found.share[of[0]]),
            bool(found.is_product[of[0]]),
        )
        for (what, _), of in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row.seconds)


def _dots(run: Simulation, found: Rooflines, groups: Sequence[Alike]) -> str:
    device, shown = run.links.device, [g for g in groups if g.flop_per_s > 0]
    peak, bandwidth = found.peak(device), device.hbm_bytes_per_s
    ridge = math.log10(peak / bandwidth)
    across = [math.log10(min(max(g.flop_per_byte, 1e-2), 1e5)) for g in shown]
    left, right = min([-0.5, *across]), max([ridge + 1, *across]) + 0.2
    bottom, top = math.log10(bandwidth) + left, math.log10(peak) + 0.3

    def x(value: float) -> float:
        return WIDTH * (value - left) / (right - left)

    def y(value: float) -> float:
        return HEIGHT - HEIGHT * (max(value, bottom) - bottom) / (top - bottom)

    corners = [(left, bottom), (ridge, math.log10(peak)), (right, math.log10(peak))]
    shapes = f'<polyline class="roof" points="{" ".join(f"{x(a):.1f},{y(b):.2f}" for a, b in corners)}"/>'
    for a, g in zip(across, shown, strict=True):
        size = 1 + int(g.seconds > 0.01 * run.serial_s) + int(g.seconds > 0.1 * run.serial_s)
        kind, b = "product" if g.is_product else "other", math.log10(g.flop_per_s)
        place = f'x1="{x(a):.1f}" x2="{x(a):.1f}" y1="{y(b):.2f}" y2="{y(b):.2f}"'
        shapes += f'<line class="dot {kind} s{size}" {place}/>'
    labels = [
        (f"peak {peak / 1e12:.4g} TFLOP/s", "right:4px;top:2px"),
        (f"HBM {bandwidth / 1e12:.3g} TB/s, level with it at {peak / bandwidth:.0f} flop/byte", "right:4px;bottom:4px"),
    ]
    return chart(drawing(shapes), labels, f"{len(shown)} kinds of kernels beside the device's roofline")


def timeline(estimate: Estimate | None) -> str:
    """What runs when, kernels above collectives, with collectives beside kernels that do not need them."""
    if estimate is None or estimate.simulation is None or not estimate.simulation.overlapped_s:
        return ""
    run = estimate.simulation
    names, is_kernel = class_names(run), run.graph.nodes["kind"] == KERNEL
    ranked = sorted(_seconds_of(run, names).items(), key=lambda row: -row[1])
    colour = {name: min(n, COLOURS - 1) for n, (name, _) in enumerate(ranked)}
    rows = [_strip(run, names, colour, is_kernel), _strip(run, names, colour, ~is_kernel)]
    keys = "".join(
        f'<span class="key"><i class="k{colour[name]}"></i>{escaped(name)} {escaped(seconds_text(s))}</span>'
        for name, s in ranked[:COLOURS]
    )
    labels = [("kernels", "left:4px;top:2px"), ("collectives", "left:4px;top:52%"),
              (seconds_text(run.overlapped_s), "right:4px;bottom:4px")]  # fmt: skip
    shapes = "".join(
        f'<rect class="k{k}" x="{a:.1f}" y="{10 + 50 * row}" width="{b - a:.1f}" height="34"/>'
        for row, strip in enumerate(rows)
        for a, b, k in strip
    )
    says = "which classes of kernels and collectives run over the step"
    return (
        "<p>The step from left to right, if collectives run beside kernels that do not need them; a loop's turns are "
        "drawn as one. <code>estimate.write_timeline(path)</code> writes it for Perfetto, kernel by kernel.</p>"
        f"{chart(drawing(shapes), labels, says)}<p>{keys}</p>"
    )


def _seconds_of(run: Simulation, names: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in zip(names, (run.node_s * run.node_trips).tolist(), strict=True):
        if seconds > 0:
            found[name] = found.get(name, 0.0) + seconds
    return found


def _strip(
    run: Simulation, names: Sequence[str], colour: dict[str, int], among: np.ndarray
) -> list[tuple[float, float, int]]:
    """(from, to, colour) of the stretches of a row, in the drawing's units."""
    seconds = run.node_s * run.node_trips
    nodes = np.flatnonzero(among & (seconds > 0))
    if not len(nodes):
        return []
    nodes = nodes[np.argsort(run.node_start_s[nodes], kind="stable")]
    moments = (np.arange(COLUMNS) + 0.5) * run.overlapped_s / COLUMNS
    at = np.searchsorted(run.node_start_s[nodes], moments, side="right") - 1
    runs = (at >= 0) & (moments < run.node_start_s[nodes[at]] + seconds[nodes[at]])
    seen = [colour[names[int(node)]] if on else -1 for node, on in zip(nodes[at].tolist(), runs.tolist(), strict=True)]
    stretches, place = list[tuple[float, float, int]](), 0
    for kind, members in itertools.groupby(seen):
        count = len(list(members))
        if kind >= 0:
            stretches.append((WIDTH * place / COLUMNS, WIDTH * (place + count) / COLUMNS, kind))
        place += count
    return stretches
