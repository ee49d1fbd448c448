"""What is compared: a training step, a schedule that was written or found, a mesh of GPUs.

    case("llama bf16", "FSDP", "4x2").lower()

BP           the batch over all axes but the last
FSDP         BP, and parameters and optimizer state over the axis before the last
FSDP+TP      the same, and what a Megatron user tiles over the last axis
found, ...   states of searches, kept in `states.json.xz` as plans
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import autopart as ap
from experiments.gpu_accuracy.programs import PROGRAMS
from experiments.kept_states import KeptStates, found_by
from experiments.models import gns, t32
from experiments.models.outside.training import Training
from experiments.simulator_accuracy.states import outside

STATES = KeptStates(Path(__file__).with_name("states.json.xz"))
MESHES = {
    "4x2": ({"data": 4, "model": 2}, "1x1x8"),
    "8x4": ({"data": 8, "model": 4}, "1x4x8"),
    "2x4x4": ({"data": 2, "fsdp": 4, "model": 4}, "1x4x8"),
}
"""Axes, and XLA's topology: slices, hosts of a slice, GPUs of a host."""

SEEN = (
    "T32", "GNS", "gpt", "vit bf16", "bert", "moe", "recommender", "t5", "llama bf16", "conformer", "lstm",
    "qwen", "convnext", "graph_attention", "neox", "whisper",
)  # fmt: skip
"""Programs that were in view when the rules for GPUs were made."""

LATER = tuple(PROGRAMS)
"""Programs that were written, and compiled for GPUs, after the last rule (2026-11-30)."""

ON_HOSTS = ("gpt", "llama bf16", "moe", "conformer", "qwen", "neox", "decoder_checkpointed", "routed")
"""Programs that are also compiled for the meshes over several hosts."""

WRITTEN = ("BP", "FSDP", "FSDP+TP")
SEARCHES = {"found": (ap.MCTS(), 200, 0)}
PASSED = (1.2, 1.6)


@functools.cache
def program(name: str) -> Training:
    """A training step: step(params, opt_state, batch)."""
    if name == "T32":
        config: Any = replace(t32.Config(), layers=3, batch=48)
        return Training(t32.step(config), t32.abstract_args(config), {}, lambda key: (key, key))
    if name == "GNS":
        config = replace(gns.Config(), steps=6)
        return Training(gns.step(config), gns.abstract_args(config), {}, lambda key: (key, key))
    return PROGRAMS[name]() if name in PROGRAMS else outside(name)


def batch_of(name: str) -> Any:
    """Which dims of the inputs are the batch."""
    return {"graph": {"edges": 0, "senders": 0, "receivers": 0}} if name == "GNS" else {"batch": 0}


@dataclass(frozen=True)
class Case:
    """A program, a schedule and a mesh, by name."""

    program: str
    schedule: str
    on: str
    device: str = "h100"

    @property
    def name(self) -> str:
        return f"{self.program} {self.schedule} {self.on}"

    @property
    def mesh(self) -> ap.Mesh:
        return ap.Mesh(MESHES[self.on][0], device=self.device)

    @property
    def topology(self) -> str:
        return f"{self.device}:{MESHES[self.on][1]}"

    def tactics(self) -> Sequence[ap.Tactic]:
        """The schedule."""
        if self.schedule not in WRITTEN:
            return STATES.plans(f"{self.program} {self.on}")[self.schedule]
        *outer, model = self.mesh.axis_names
        found = [ap.ManualPartition(batch_of(self.program), axis=axis, name=f"BP {axis}") for axis in outer]
        if self.schedule != "BP":
            first = {"params": ap.FIRST_DIVISIBLE_DIM, "opt_state": ap.FIRST_DIVISIBLE_DIM}
            found.append(ap.ManualPartition(first, axis=outer[-1], name="FSDP"))
        if self.schedule == "FSDP+TP":
            found.append(ap.ManualPartition({"params": program(self.program).megatron}, axis=model, name="TP"))
        return [*found]

    def lower(self) -> ap.Lowered:
        """Our program."""
        of = program(self.program)
        return ap.jit(of.step, self.mesh, self.tactics(), donate_argnums=(0, 1)).lower(*of.args)


def cases(names: tuple[str, ...]) -> Iterator[Case]:
    """Every case of the programs `names`."""
    states = STATES.read()
    for name in names:
        for on in MESHES if name in ON_HOSTS else ("4x2",):
            for schedule in (*WRITTEN, *states.get(f"{name} {on}", ())):
                if schedule != "FSDP+TP" or program(name).megatron:
                    yield Case(name, schedule, on)


def search(names: tuple[str, ...]) -> None:
    """Searches the programs `names` on the first mesh, and keeps the states."""
    for name in names:
        step, args = program(name).step, program(name).args
        STATES.keep(f"{name} 4x2", found_by(SEARCHES, PASSED, step, args, Case(name, "", "4x2").mesh))


if __name__ == "__main__":
    search(tuple(sys.argv[1:]) or SEEN)
