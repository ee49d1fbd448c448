"""Where the program's own code would say what a plan decided: the values in it whose layout changes, with their lines.

    lm.py:52  params/blocks_*/up/kernel   whole on data, gathered for its readers      6 x
    lm.py:60  blocks_*/down/dot_general   [data, -], summed over model                 6 x

A line stands for a redistribution: of what an op leaves, or for those who read a value. What the backward pass does
has no line of its own; a constraint on a value is one on its gradient too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autopart.api.tracing.names import Keys
from autopart.base.quoting import short_place
from autopart.core.value_places import BACKWARD
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.run import named_axes

Spec = tuple[tuple[str, ...], ...]
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class CodeLine:
    """Values that one line of code makes or reads, which come to lie alike there.

    where    the line, "lm.py:52"
    value    their name: a path, a tag, or scope and op; those of several layers with `*` for their numbers
    type     of one of them
    spec     mesh axes of each dim
    count    how many there are
    made_by  the kind of op that leaves them so; empty where a reader takes them so
    """

    where: str
    value: str
    type: str
    spec: Spec
    count: int = 1
    made_by: str = ""


def code_lines(local: DeviceLocal) -> tuple[CodeLine, ...]:
    """The lines, in program order."""
    keys, found = Keys(local.program), dict[tuple[str, str, Spec], CodeLine]()
    for op, value, layout, made_by in _changes(local):
        where = short_place(local.program.where(op)).partition(" ")[0]
        name = keys.unnumbered(value).partition("@")[0]
        backward = f"/{name}".find(f"/{BACKWARD}") >= 0 or "transpose(" in local.program.where(op)
        if ".py:" not in where or backward:
            continue
        spec = named_axes(local.mesh, layout)
        starred = _DIGITS.sub("*", name)
        known = found.get((where, starred, spec))
        line = CodeLine(where, name, str(local.program.type_of(value)), spec, made_by=made_by)
        if known is not None:
            line = replace(known, value=starred if name != known.value else name, count=known.count + 1)
        found[where, starred, spec] = line
    return tuple(found.values())


def _changes(local: DeviceLocal) -> Iterator[tuple[int, int, int, str]]:
    """(op, value, layout, kind of the op if it makes the value): it comes to lie so where the op makes or reads it."""
    program = local.program
    made = [(int(program.value_op[v]), int(v), int(local.settled[v])) for v in local.at_def.tolist()]
    found = [(*row, program.spec(row[0]).kind) for row in made]
    placed = local.placement
    rows = zip(local.first_reader.tolist(), placed.value.tolist(), placed.target.tolist(), strict=True)
    yield from sorted([*found, *((int(op), value, int(layout), "") for op, value, layout in rows)])
