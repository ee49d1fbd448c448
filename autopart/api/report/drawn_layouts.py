"""Where each argument lives: groups of arguments that are alike, drawn on the mesh.

params/blocks/*/up (32 x)      what products read and the step updates stands first, then the state that updates
opt_state/mu/blocks/*/up       it, then inputs; what every device holds whole is folded
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from autopart.api.explained.metadata import Metadata
from autopart.api.explained.what_if import spec_text
from autopart.api.programs.does_not_fit import only_updated
from autopart.api.report.mesh_drawing import mesh_drawing
from autopart.base.html import escaped
from autopart.base.quoting import one_line
from autopart.base.units import bytes_text
from autopart.core.program import Program
from autopart.search.space.next_values import next_values

DRAWN = 48
"""Groups of alike arguments that are drawn; the table below has every argument."""

Key = tuple[str, str, Any]
"""Pattern of names, type, axes of each dim."""


def layouts(metadata: Metadata, program: Program) -> str:
    """The groups, drawn, and a table of everything."""
    groups: dict[Key, list[int]] = {}
    for place, name in enumerate(program.argument_names):
        key = re.sub(r"\d+", "*", name), str(program.type_of(program.arguments[place])), metadata.in_specs[name]
        groups.setdefault(key, []).append(place)
    state = set(next_values(program).values())
    ranked = sorted(groups.items(), key=lambda group: _role(program, group[1][0], state))
    tiled = [(key, members) for key, members in ranked if any(key[2])]
    whole = [(key, members) for key, members in ranked if not any(key[2])]
    mesh = "{" + ", ".join(f"{one_line(name)}:{size}" for name, size in metadata.mesh.items()) + "}"
    return (
        f"<p>A square is a device of the mesh {escaped(mesh)}: the first axis downwards, the others to "
        "the right. Devices of one colour hold the same part; grey devices hold all of it.</p>"
        f"{_drawn(metadata, program, tiled)}{_folded(metadata, program, whole)}"
        '<h3>Every argument and output</h3><div data-table="layouts"></div>'
    )


def _role(program: Program, place: int, state: set[int]) -> int:
    """0 of a parameter, 1 of state that only updates read, 2 of an input."""
    if place not in state:
        return 2
    return int(only_updated(program, program.arguments[place]))


def _folded(metadata: Metadata, program: Program, groups: Sequence[tuple[Key, list[int]]]) -> str:
    """What every device holds whole, behind a line that says how much it is."""
    if not groups:
        return ""
    held = sum(program.type_of(program.arguments[place]).bytes for _, members in groups for place in members)
    count = sum(len(members) for _, members in groups)
    line = f"{count} argument{'s' if count > 1 else ''} that every device holds whole, {bytes_text(held)}"
    return f"<details><summary>{escaped(line)}</summary>{_drawn(metadata, program, groups)}</details>"


def _drawn(metadata: Metadata, program: Program, groups: Sequence[tuple[Key, list[int]]]) -> str:
    sizes, names = list(metadata.mesh.values()), list(metadata.mesh)
    found: list[str] = []
    for (pattern, type_, spec), members in groups[:DRAWN]:
        named = program.argument_names[members[0]] if len(members) == 1 else f"{pattern} ({len(members)} x)"
        found.append(
            f'<div class="layout">{mesh_drawing(sizes, names, spec)}<div><b>{escaped(named)}</b><br>'
            f"<code>{escaped(type_)}</code><br><code>{escaped(spec_text(spec))}</code></div></div>"
        )
    left = len(groups) - DRAWN
    note = f'<p class="note">and {left} more groups: the table has every argument.</p>' if left > 0 else ""
    return f'<div class="layouts">{"".join(found)}</div>{note}' if found else ""
