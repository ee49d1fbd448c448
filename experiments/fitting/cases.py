"""Programs that the TPU compiler is asked about: what each claim of the README compares.

    microbatches   T32 of 4 layers under BP+MP+Z3, in one piece and in 8 microbatches
    recomputation  T32, UNet and GPT: everything kept, `ap.Recompute("blocks")`, `jax.checkpoint` around the block by hand
    whole          T32 of 32 layers, which the compiler makes fit by computing again
    seven          the 7 B model on v5e 4x4: the plan that a search over programs finds, and the best by hand
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import autopart as ap
from experiments.fitting import model
from experiments.models import t32, unet
from experiments.models.outside import gpt
from experiments.models.tactics import BP, MP, Z3

V3 = ("v3:4x4", ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3"))
V5E = ("v5e:2x4", ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e"))
V5E_POD = ("v5e:4x4", ap.Mesh({"data": 4, "model": 4}, device="tpu_v5e"))

Built = tuple[Callable[..., Any], Sequence[Any]]
"""A training step and its abstract arguments."""


@dataclass(frozen=True)
class Case:
    """A program under a schedule, and where it is compiled for."""

    claim: str
    program: str
    way: str
    on: tuple[str, ap.Mesh]
    build: Callable[[], Built]
    schedule: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.program}, {self.way}, {self.on[0]}"

    @property
    def mesh(self) -> ap.Mesh:
        return self.on[1]

    def lower(self) -> ap.Lowered:
        step, args = self.build()
        return ap.jit(step, self.mesh, list(self.schedule), donate_argnums=(0, 1)).lower(*args)


def _t32(**sizes: Any) -> Callable[[], Built]:
    config = replace(t32.Config(), **sizes)
    return lambda: (t32.step(config), t32.abstract_args(config))


def _unet(**sizes: Any) -> Callable[[], Built]:
    config = replace(unet.Config(), **sizes)
    return lambda: (unet.step(config), unet.abstract_args(config))


def _gpt(**sizes: Any) -> Callable[[], Built]:
    def build() -> Built:
        made = gpt.training(**sizes)
        return made.step, made.args

    return build


def _seven(checkpoint: bool = False) -> Callable[[], Built]:
    return lambda: (model.step(checkpoint), model.abstract_args(model.Config()))


LOOP = ap.Microbatch({"batch": 0}, 8)
MICROBATCHES: dict[str, tuple[ap.Tactic, ...]] = {
    "1 microbatch": (),
    "8 microbatches, whole accumulators": (LOOP,),
    "8 microbatches, sharded": (LOOP, ap.ShardedLoops()),
}
"""One loop holds gathered parameters and whole gradients, the other gathers and reduces in every turn."""


def _microbatches() -> list[Case]:
    found = []
    for on, batch in ((V3, 128), (V5E, 32)):
        build = _t32(layers=4, batch=batch)
        for way, extra in MICROBATCHES.items():
            found.append(Case("microbatches", "T32 of 4 layers BP+MP+Z3", way, on, build, (BP, MP, Z3, *extra)))
    return found


RECOMPUTED = [
    ("T32 of 4 layers BP+MP+Z3", V5E, lambda **way: _t32(layers=4, batch=12, **way), (BP, MP, Z3)),
    ("UNet BP", V3, _unet, (BP,)),
    ("GPT of 6 layers BP", V3, lambda **way: _gpt(layers=6, **way), (BP,)),
]


def _recomputed() -> list[Case]:
    found = []
    for program, on, build, tactics in RECOMPUTED:
        found += [
            Case("recomputation", program, "all kept", on, build(), tactics),
            Case("recomputation", program, "by hand", on, build(checkpoint=True), tactics),
            Case("recomputation", program, "blocks", on, build(), (*tactics, ap.Recompute("blocks"))),
        ]
    return found


FIRST = ap.FIRST_DIVISIBLE_DIM
FSDP = [ap.ManualPartition({"tokens": 0}, axis=axis) for axis in V5E_POD[1].axis_names]
FSDP += [ap.ManualPartition({"params": FIRST, "opt_state": FIRST}, axis=axis) for axis in V5E_POD[1].axis_names]
AUTO = ap.AutomaticPartition(
    list(V5E_POD[1].axis_names), budget=ap.Budget(200), microbatch=(1, 2, 4, 8), recompute=True, cache=False
)

CASES = [
    *_microbatches(),
    *_recomputed(),
    Case("seven", "7 B", "found", V5E_POD, _seven(), (AUTO,)),
    Case("seven", "7 B", "by hand, FSDP", V5E_POD, _seven(checkpoint=True), tuple(FSDP)),
    Case("whole", "T32 of 32 layers", "BP+MP+Z3", V3, _t32(), (BP, MP, Z3)),
]
