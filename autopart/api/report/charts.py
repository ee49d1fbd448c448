"""Charts as HTML and SVG without scripts: bars, a filled line over program time, a falling step line.

Text is HTML beside the drawing, not SVG within it, so that it keeps its size at any width of the page; only shapes are
stretched.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autopart.base.html import escaped

WIDTH, HEIGHT = 1000.0, 100.0
"""The drawing's own units, which the page stretches."""

POINTS = 400
"""Points that a line over program time has at most."""


@dataclass(frozen=True)
class Bar:
    """A name, a value that is no less than 0, the value as text, and classes of the page's style."""

    name: str
    value: float
    text: str
    style: str = ""


def bars(rows: Sequence[Bar]) -> str:
    """A bar a row, the longest as wide as there is room."""
    longest = max((row.value for row in rows if np.isfinite(row.value)), default=0.0) or 1.0
    lines: list[str] = []
    for row in rows:
        share = 100 * min(1.0, row.value / longest) if np.isfinite(row.value) else 100.0
        bar = "bar second" if "second" in row.style else "bar"
        found = " found" if "found" in row.style else ""
        lines.append(
            f'<div class="row"><span class="name{found}">{escaped(row.name)}</span>'
            f'<span class="track"><span class="{bar}" style="display:block;width:{share:.2f}%"></span></span>'
            f'<span class="value{found}">{escaped(row.text)}</span></div>'
        )
    return f'<div class="bars">{"".join(lines)}</div>'


def highest_of_each(values: np.ndarray, points: int = POINTS) -> np.ndarray:
    """At most so many values, the highest of each stretch of equal length: a peak stays."""
    count = min(points, len(values))
    if count == len(values):
        return values
    edges = np.linspace(0, len(values), count + 1).astype(np.int64)
    return np.array([values[a:b].max() for a, b in itertools.pairwise(edges.tolist())])


def area(values: np.ndarray, below: float, top: float, limit: float | None) -> str:
    """`values` over time as an area on a ground of height `below`, up to `top`; `limit` is a dashed line."""
    heights = HEIGHT - HEIGHT * (below + values) / top
    across = np.linspace(0, WIDTH, len(values)) if len(values) > 1 else np.array([0.0])
    line = " ".join(f"{x:.1f},{y:.2f}" for x, y in zip(across.tolist(), heights.tolist(), strict=True))
    ground = HEIGHT - HEIGHT * below / top
    shapes = f'<polygon class="area" points="0,{ground:.2f} {line} {WIDTH:g},{ground:.2f}"/>'
    shapes += f'<rect class="fixed" x="0" y="{ground:.2f}" width="{WIDTH:g}" height="{HEIGHT - ground:.2f}"/>'
    return drawing(shapes + (_level("limit", limit, top) if limit is not None and limit <= top else ""))


def falling(points: Sequence[tuple[float, float]], last: float, low: float, top: float, bound: float | None) -> str:
    """The best so far: level from each (evaluation, value) to the next, until `last`."""
    span, height = max(last, 1.0), (top - low) or 1.0
    path: list[str] = []
    for i, (x, y) in enumerate(points):
        until = points[i + 1][0] if i + 1 < len(points) else last
        level = HEIGHT - HEIGHT * (min(y, top) - low) / height
        path += [f"{WIDTH * x / span:.1f},{level:.2f}", f"{WIDTH * until / span:.1f},{level:.2f}"]
    shapes = f'<polyline class="track-line" points="{" ".join(path)}"/>'
    return drawing(shapes + (_level("bound", bound - low, height) if bound is not None else ""))


def _level(style: str, value: float, top: float) -> str:
    y = HEIGHT - HEIGHT * value / top
    return f'<line class="{style}" x1="0" x2="{WIDTH:g}" y1="{y:.2f}" y2="{y:.2f}"/>'


def drawing(shapes: str) -> str:
    """Shapes in units of `WIDTH` and `HEIGHT`, stretched to the place that a chart has."""
    box = f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none"'
    return f'<svg {box} aria-hidden="true" focusable="false">{shapes}</svg>'


def chart(drawing: str, labels: Sequence[tuple[str, str]], says: str) -> str:
    """A drawing with labels, each a text with its place as CSS ("top:0;left:0"); `says` is what the drawing shows."""
    placed = "".join(f'<span class="label" style="{place}">{escaped(text)}</span>' for text, place in labels)
    return f'<div class="chart" role="img" aria-label="{escaped(says)}">{drawing}{placed}</div>'
