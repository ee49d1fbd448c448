"""`Lowered.explain`: what is known of a value, as data and as text.

print(lowered.explain("params/blocks/3/qkv"))

params/blocks/3/qkv  argument f32[512,3,8,64]  [-, -, model]  a device holds f32[512,3,4,64], 1.57 MB of 3.15 MB
  model    tiled on dim 2 by tile<params/blocks/3/qkv, 2, model> of tactic "MP"
  batch    whole (nobody asked): no tactic decides about this axis
           on dim 0: 2.10 ms, 4.1 GB instead of 1.93 ms, 5.2 GB
  read by  dot_general (f32[..], f32[..]) -> (f32[..])  at model.py:41
           batch (0, _) -> tile 0    model (_, 2) -> tile 2    0.13 ms
  all_reduce<batch>  1 x  0.21 ms  1.57 MB  of f32[512,3,4,64]  at model.py:41
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autopart.api.explained.what_if import Spec, spec_text
from autopart.api.tactics.stages import Stages
from autopart.base.html import lines_html
from autopart.base.quoting import one_line, short_place
from autopart.base.units import bytes_text, seconds_text

SHOWN = 6
"""Readers and collectives that the text shows of each value."""

MAX_LINKS = 8
"""Ops between a decision and a value that the text shows: the first and the last of them."""


@dataclass(frozen=True)
class Option:
    """What tiling a dim would make of the whole program: see `Lowered.what_if`."""

    dim: int
    step_s: float
    peak_bytes: float
    collectives: Mapping[str, int]


@dataclass(frozen=True)
class AxisExplained:
    """What one mesh axis does to the value.

    dim      the dim that it tiles; None where it tiles none
    tactic, action   the tactic and the action from which the tile comes, or which keep the value whole; "" for none
    via      the ops along which propagation came from that action's value, each with its mapping and source line
    kind, why   where it tiles none: the reason (see `left_whole.py`), as a word and in words
    options  what tiling each dim would cost, where that was tried; `options_left` dims were not tried
    """

    axis: str
    size: int
    dim: int | None
    tactic: str
    action: str
    via: tuple[str, ...]
    kind: str = ""
    why: str = ""
    options: tuple[Option, ...] = ()
    options_left: int = 0

    def lines(self) -> list[str]:
        """For readers."""
        if self.dim is None:
            rows = [f"whole ({self.kind}): {one_line(self.why)}"]
            for o in self.options:
                count = ", ".join(f"{n} {kind}" for kind, n in o.collectives.items())
                rows.append(f"on dim {o.dim}: {seconds_text(o.step_s)}, {bytes_text(o.peak_bytes)}, {count or '-'}")
            if self.options_left:
                rows.append(f"{self.options_left} dims could be tiled and were not priced: Lowered.what_if does")
            return rows
        by = f'{one_line(self.action)} of tactic "{one_line(self.tactic)}"' if self.action else "a tactic that hid it"
        rows = [f"tiled on dim {self.dim} by {by}"]
        links = list(self.via)
        if len(links) > MAX_LINKS:
            left = len(links) - MAX_LINKS
            links = [*links[: MAX_LINKS // 2], f"... {left} more ops", *links[-MAX_LINKS // 2 :]]
        return rows + [f"-> {one_line(link)}" for link in links]


@dataclass(frozen=True)
class ReaderExplained:
    """Ops that read the value and are alike: how each axis divides them.

    mappings   mesh axis -> the mapping of the op's loop over it
    seconds    of the kernels they are the root of, in a step; 0 where they are computed inside another's, None
               where the mesh names no device
    """

    op: str
    count: int
    where: str
    mappings: Mapping[str, str]
    seconds: float | None


@dataclass(frozen=True)
class CollectiveExplained:
    """Collectives that move the value, what is made of it alone, or its gradient.

    bytes     of the larger side on a device, all runs together
    seconds   of all runs, each by itself; None where the mesh names no device
    of        the type that a device holds before it
    """

    kind: str
    axes: tuple[str, ...]
    count: int
    bytes: float
    seconds: float | None
    of: str
    where: str


@dataclass(frozen=True)
class ValueExplained:
    """A value: its layout and why it is that, how its readers are divided, and what it costs in collectives.

    role        "argument", "output", "tag", or "value" for one that is named by its number
    type_, local_type   of the whole array and of what a device holds; `bytes` and `local_bytes` are theirs
    spec        mesh axes of each dim
    where       source line of the op that makes it; empty for an argument
    collectives the most seconds first
    """

    name: str
    role: str
    type_: str
    local_type: str
    bytes: float
    local_bytes: float
    spec: Spec
    where: str
    axes: tuple[AxisExplained, ...]
    readers: tuple[ReaderExplained, ...]
    collectives: tuple[CollectiveExplained, ...]

    @property
    def collective_s(self) -> float | None:
        """Seconds of its collectives in a step; None where the mesh names no device."""
        found = [row.seconds for row in self.collectives]
        return None if None in found else sum(s for s in found if s is not None)

    def lines(self) -> list[str]:
        """For readers."""
        head = f"{one_line(self.name)}  {self.role} {self.type_}  {spec_text(self.spec)}  "
        head += f"a device holds {self.local_type}, {bytes_text(self.local_bytes)} of {bytes_text(self.bytes)}"
        rows = [head + (f"  at {short_place(self.where)}" if self.where else "")]
        width = max([len("read by"), *(len(one_line(a.axis)) for a in self.axes)])
        for axis in self.axes:
            rows += _labelled(one_line(axis.axis), axis.lines(), width)
        for reader in self.readers[:SHOWN]:
            rows += _labelled("read by", _reader_lines(reader), width)
        rows += _more("read by", len(self.readers), width)
        rows += [f"  {_collective_line(row)}" for row in self.collectives[:SHOWN]]
        left = len(self.collectives) - SHOWN
        return rows + ([f"  and {left} more kinds of collectives"] if left > 0 else [])


@dataclass(frozen=True)
class Explanation(Sequence[ValueExplained]):
    """The values that a path, tag or glob names, in the program's order. `step_s` is the step as it stands.

    stages   of an `ap.Pipeline`, where its axis tiles any of the values
    """

    path: str
    values: tuple[ValueExplained, ...]
    step_s: float | None
    peak_bytes: float | None
    stages: Stages | None = None

    def __getitem__(self, index: int) -> ValueExplained:  # type: ignore[override]
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def _repr_html_(self) -> str:
        """For notebooks: a list per value."""
        parts = [lines_html([value.lines()[0]]) + lines_html(map(str.strip, value.lines()[1:])) for value in self]
        return "".join(parts)

    def __str__(self) -> str:
        head = []
        if self.step_s is not None and self.peak_bytes is not None:
            head = [f"as it stands: step {seconds_text(self.step_s)}, peak {bytes_text(self.peak_bytes)}"]
        drawn = [] if self.stages is None else [str(self.stages)]
        return "\n".join([*head, *(line for value in self.values for line in value.lines()), *drawn])


def _labelled(label: str, lines: Sequence[str], width: int) -> list[str]:
    return [f"  {label if i == 0 else '':{width}}  {line}" for i, line in enumerate(lines)]


def _more(label: str, count: int, width: int) -> list[str]:
    return _labelled(label, [f"and {count - SHOWN} more kinds of ops"], width) if count > SHOWN else []


def _reader_lines(reader: ReaderExplained) -> list[str]:
    count = f"{reader.count} x " if reader.count > 1 else ""
    loops = [f"{one_line(axis)} {mapping}" for axis, mapping in reader.mappings.items()] or ["no loop: not divided"]
    loops += [seconds_text(reader.seconds) if reader.seconds else "inside another kernel"] * (
        reader.seconds is not None
    )
    where = f"  at {short_place(reader.where)}" if reader.where else ""
    return [f"{count}{reader.op}{where}", "    ".join(loops)]


def _collective_line(row: CollectiveExplained) -> str:
    seconds = f"  {seconds_text(row.seconds)}" if row.seconds is not None else ""
    where = f"  at {short_place(row.where)}" if row.where else ""
    axes = ",".join(map(one_line, row.axes))
    return f"{row.kind}<{axes}>  {row.count} x{seconds}  {bytes_text(row.bytes)}  of {row.of}{where}"
