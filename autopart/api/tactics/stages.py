"""What `ap.Pipeline` made of a step, as data: stages of layers, who works when, and what is handed over.

    1f1b along pipe: 4 stages of 2 layers, 8 microbatches, 27 % of the time idle
             F F F F B F B ..
    stage 0  0 1 2 3 . 4 . ..        layers 0-1
    stage 3  . . . 0 0 1 1 ..        layers 6-7

A column is a tick of forward or backward work; a point is an idle one, in which a stage computes what nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.base.html import escaped
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import only_moves
from autopart.core.program import Program
from autopart.spmd.pipeline import RETURNED, SENT, STAGES, Ticks

COLUMNS = 64
"""Ticks that are drawn; the text says how many are left."""


@dataclass(frozen=True)
class Stages:
    """The stages of a step.

    axis          the mesh axis: stage s is at place s along it
    schedule      "gpipe", "1f1b" or "circular"
    repeats       runs of layers of a stage
    layers        of the model, in all stages
    sent, returned   types of what a microbatch hands from stage to stage, forward and backward
    """

    axis: str
    stages: int
    schedule: str
    repeats: int
    microbatches: int
    layers: int
    sent: tuple[str, ...]
    returned: tuple[str, ...]

    @staticmethod
    def of(said: Mapping[str, Any]) -> Stages | None:
        """Of what a tactic says of itself; None where an axis of one device has no stages, or an older file none."""
        staged: Mapping[str, Any] = said.get("staged") or {}
        if not staged:
            return None
        return Stages(
            axis=said["axis"], stages=staged["stages"], schedule=said["schedule"], repeats=said["repeats"],
            microbatches=staged["microbatches"], layers=staged["layers"], sent=tuple(staged["sent"]),
            returned=tuple(staged["returned"]),
        )  # fmt: skip

    @property
    def ticks(self) -> Ticks:
        """The order of the work."""
        return Ticks(self.stages, self.microbatches, self.schedule, self.repeats)

    @property
    def stage_of(self) -> tuple[int, ...]:
        """The stage of each layer."""
        return tuple(layer // self.length % self.stages for layer in range(self.layers))

    @property
    def length(self) -> int:
        """Layers of a run; the last run, and those before it, may have fewer."""
        return -(-self.layers // (self.stages * self.repeats))

    @property
    def idle(self) -> float:
        """Share of the ticks in which a stage has no microbatch."""
        return (self.stages - 1) / self.ticks.kind_ticks

    def remarks(self) -> tuple[str, ...]:
        """What is to be said of it: few microbatches, and stages that are not full."""
        found, full = list[str](), self.length * self.stages * self.repeats
        if self.microbatches < self.stages:
            few = f"{self.microbatches} microbatches are fewer than {self.stages} stages"
            found.append(f"{few}: {self.idle:.0%} of the time idle")
        if full > self.layers:
            divide = [n for n in range(2, self.layers + 1) if self.layers % (n * self.repeats) == 0]
            longest = f"{self.layers} layers take as long as {full}, since the longest run has {self.length}"
            found.append(f"{longest}; stages that divide them: {', '.join(map(str, divide)) or 'none'}")
        return tuple(found)

    def work(self, stage: int) -> list[tuple[int, str, int, int]]:
        """(tick, "F" or "B", microbatch, run of layers) of all that a stage does, in order."""
        return sorted(self.ticks.work(stage), key=lambda row: (row[0], row[1] == "B"))

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        rows = {"stage_of": self.stage_of, "work": [self.work(stage) for stage in range(self.stages)]}
        return {**vars(self), **rows}

    # ---- drawn

    def table(self) -> Iterator[tuple[int, list[int | None]]]:
        """(stage, the microbatch of each column or None) of the columns of `kinds`."""
        for stage in range(self.stages):
            there = {(tick, kind): microbatch for tick, kind, microbatch, _ in self.work(stage)}
            yield stage, [there.get(column) for column in self.columns]

    @property
    def columns(self) -> list[tuple[int, str]]:
        """(tick, "F" or "B") of each column: where any stage has such work."""
        found = {row[:2] for stage in range(self.stages) for row in self.work(stage)}
        return sorted(found, key=lambda column: (column[0], column[1] == "B"))

    def layers_of(self, stage: int) -> str:
        """The layers of a stage, in words."""
        starts = range(stage * self.length, self.layers, self.stages * self.length)
        runs = [(start, min(start + self.length, self.layers) - 1) for start in starts]
        if not runs:
            return "no layer"
        return "layers " + ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)

    @property
    def title(self) -> str:
        """In one line."""
        each = self.length * self.repeats
        return (
            f"{self.schedule} along {self.axis}: {self.stages} stages of {each} {'layers' if each > 1 else 'layer'}, "
            f"{self.microbatches} microbatches, {self.idle:.0%} of the time idle"
        )

    def __str__(self) -> str:
        width, shown = len(str(self.microbatches - 1)), self.columns[:COLUMNS]
        cells = lambda row: " ".join(("." if c is None else str(c)).rjust(width) for c in row[: len(shown)])  # noqa: E731
        label = len(f"stage {self.stages - 1}")
        left = len(self.columns) - len(shown)
        lines = [
            self.title,
            f"{'':{label}}  {cells([kind for _, kind in shown])}" + (f"  and {left} more" if left else ""),
        ]
        lines += [f"{f'stage {s}':{label}}  {cells(row)}  {self.layers_of(s)}" for s, row in self.table()]
        lines += [f"handed on: {', '.join(self.sent)}; back: {', '.join(self.returned)}"]
        return "\n".join(lines)

    def html(self, peak: str = "") -> str:
        """As a table, idle ticks shaded; `peak`: what a stage needs of memory."""
        shown = self.columns[:COLUMNS]
        head = "".join(f"<th>{kind}</th>" for _, kind in shown)
        rows = "".join(
            f"<tr><td>{s}</td>{''.join(map(_cell, row[: len(shown)], (k for _, k in shown)))}"
            f"<td>{escaped(self.layers_of(s))}</td><td>{escaped(peak)}</td></tr>"
            for s, row in self.table()
        )
        left = len(self.columns) - len(shown)
        note = f"<p>{escaped(self.title)}.{f' {left} more ticks are left out.' if left else ''}</p>"
        return f'{note}<div class="scroll"><table class="stages"><tr><th>stage</th>{head}</tr>{rows}</table></div>'


def _cell(microbatch: int | None, kind: str) -> str:
    return '<td class="idle"></td>' if microbatch is None else f'<td class="{kind}">{microbatch}</td>'


def stage_facts(program: Program, repeats: int) -> dict[str, Any]:
    """Stages, layers, microbatches and what is handed over, as the tags of a program with stages say."""
    first = program.tags[STAGES][0]
    stages = program.type_of(first).shape[0]
    scopes = {int(program.op_scope[program.value_op[v]]) for v in program.tags[SENT]}
    ticks = sum(program.scopes[scope].trips for scope in scopes)
    return {
        "stages": stages, "layers": layers_of(program, first), "microbatches": (ticks - stages + 1) // repeats,
        "sent": _handed_over(program, program.tags[SENT]), "returned": _handed_over(program, program.tags[RETURNED]),
    }  # fmt: skip


def layers_of(program: Program, rows: int) -> int:
    """How many layers there are rows of in an array of all stages, without those that only fill the last ones."""
    op = int(program.value_op[rows])
    while only_moves(traits_of(program.spec(op)), program.spec(op)):
        value = int(program.operands_of(op)[0])
        rows, before, op = value, rows, int(program.value_op[value])
        if len(program.type_of(rows).shape) < len(program.type_of(before).shape):
            break
    padded = program.spec(op).kind == "pad"
    return program.type_of(int(program.operands_of(op)[0]) if padded else rows).shape[0]


def _handed_over(program: Program, values: Sequence[int]) -> list[str]:
    types = [program.type_of(v) for v in values]
    found = dict.fromkeys(f"{t.dtype}[{','.join(map(str, t.shape[1:]))}]" for t in types)
    return list(found)
