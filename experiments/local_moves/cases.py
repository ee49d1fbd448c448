"""The grid: steps over one, two and more dims, of arrays as models have them, each in all its forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autopart.spmd.redistribution import DistributedType, Plan, Step, plan
from autopart.spmd.redistribution.forms import forms
from autopart.spmd.redistribution.local_copies import MOVING

TOPOLOGY, DEVICE = "v5e:2x4", "tpu_v5e"
MESH = {"x": 4, "y": 2}
DTYPES = {"bf16": 2, "f32": 4}

GRID = (
    ("[3{x}12, 1024, 2048{y}4096]", "[12, 1024, 4096]"),
    ("[6{y}12, 1024, 1024{x}4096]", "[12, 1024, 4096]"),
    ("[3{x}12, 512{y}1024, 4096]", "[12, 1024, 4096]"),
    ("[12, 256{x}1024, 2048{y}4096]", "[12, 1024, 4096]"),
    ("[1024{x}4096, 2048{y}4096]", "[4096, 4096]"),
    ("[2048{y}4096, 1024{x}4096]", "[4096, 4096]"),
    ("[3{x}12, 1024, 8{y}16, 256]", "[12, 1024, 16, 256]"),
    ("[3{x}12, 16, 1024, 64{y}128]", "[12, 16, 1024, 128]"),
    ("[3{x}12, 1024, 4096]", "[12, 1024, 4096]"),
    ("[12, 256{x}1024, 4096]", "[12, 1024, 4096]"),
    ("[12, 1024, 1024{x}4096]", "[12, 1024, 4096]"),
    ("[12, 1024, 4096] sum{x} sum{y}", "[3{x}12, 1024, 2048{y}4096]"),
    ("[12, 1024, 4096] sum{x} sum{y}", "[12, 512{y}1024, 1024{x}4096]"),
    ("[4096, 4096] sum{x} sum{y}", "[1024{x}4096, 2048{y}4096]"),
    ("[8, 1024, 4096] sum{x}", "[8, 256{x}1024, 4096]"),
    ("[8, 1024, 4096] sum{x}", "[8, 1024, 1024{x}4096]"),
    ("[8{x}32, 1024, 4096]", "[32, 256{x}1024, 4096]"),
    ("[8{x}32, 1024, 4096]", "[32, 1024, 1024{x}4096]"),
    ("[8, 1024{x}4096, 4096]", "[2{x}8, 4096, 4096]"),
    ("[8, 1024{x}4096, 4096]", "[8, 4096, 1024{x}4096]"),
    ("[8, 1024, 4096{x}16384]", "[2{x}8, 1024, 16384]"),
    ("[8, 1024, 4096{x}16384]", "[8, 256{x}1024, 16384]"),
    ("[4096{x}16384, 4096]", "[16384, 1024{x}4096]"),
    ("[4, 1024{x}4096, 16, 256]", "[4, 4096, 4{x}16, 256]"),
    ("[1, 1024{x}4096, 4096]", "[1, 4096, 1024{x}4096]"),
    ("[1024, 1, 1024{x}4096]", "[256{x}1024, 1, 4096]"),
    ("[8{x}32, 1024, 4096{y}8192]", "[32, 128{y,x}1024, 8192]"),
    ("[8, 1024{y,x}8192, 4096]", "[2{x}8, 8192, 2048{y}4096]"),
)
"""(source, target) of one step each; at most 200 MB on a device."""


@dataclass(frozen=True)
class Case:
    """One step in one form: the steps that are emitted for it."""

    planned: Step
    steps: tuple[Step, ...]
    dtype: str

    @property
    def name(self) -> str:
        marks = [f"{s.text()}{' stacked' if s.stacked else ''}" for s in self.steps]
        return f"{self.dtype} {self.planned.source} -> {self.planned.target}: {', '.join(marks)}"

    @property
    def plan(self) -> Plan:
        return Plan(self.planned.source, self.planned.target, self.steps, 0.0, 1.0)


def cases() -> Iterator[Case]:
    """Every step of the grid, in every form and element type."""
    for dtype in DTYPES:
        for source, target in GRID:
            (step,) = plan(DistributedType.parse(source, MESH), DistributedType.parse(target, MESH)).steps
            for form in forms(step):
                yield Case(step, form, dtype)
            if step.kind in MOVING and not step.stacked:
                yield Case(step, (replace(step, stacked=True),), dtype)
