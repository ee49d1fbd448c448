"""Which part of an array each device of a mesh holds, as a small picture.

    mesh {batch:2, model:4}     [batch, -]          [-, model]         [-]
                                a a a a             a b c d            . . . .
                                b b b b             a b c d            . . . .

A square per device, the first axis downwards, the others to the right; devices of one colour hold the same part, and
grey ones all of it. Axes longer than `MOST` devices are cut off.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

MOST = 8
"""Devices drawn of an axis."""

SIDE = 72
"""Of the picture, in its own units."""


def mesh_drawing(sizes: Sequence[int], names: Sequence[str], spec: Sequence[Sequence[str]]) -> str:
    """The picture of a layout: `spec` has the mesh axes of each dim."""
    shown = [min(size, MOST) for size in sizes]
    rows = shown[0] if shown else 1
    columns = math.prod(shown[1:]) if len(shown) > 1 else 1
    used = [axis for axis, name in enumerate(names) if any(name in axes for axes in spec)]
    parts = math.prod(sizes[a] for a in used)
    step = SIDE / max(rows, columns)
    shapes: list[str] = []
    for number, place in enumerate(itertools.product(*map(range, shown)) if shown else [()]):
        part = 0
        for axis in used:
            part = part * sizes[axis] + place[axis]
        x, y = (number % columns) * step, (number // columns) * step
        shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.9:.1f}" height="{step * 0.9:.1f}" '
            f'fill="{colour(part, parts) if used else "#9aa3ad"}"/>'
        )
    return f'<svg viewBox="0 0 {SIDE} {SIDE}" aria-hidden="true" focusable="false">{"".join(shapes)}</svg>'


def colour(part: int, parts: int) -> str:
    """A colour per part; neighbours differ in lightness too, for those who do not see colours."""
    hue = 360 * part / parts
    return f"hsl({hue:.0f} 65% {(45, 62)[part % 2]}%)"
