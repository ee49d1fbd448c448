"""Programs and schedules on which the simulator is compared with the TPU compiler.

T32 has 4 of its 32 layers, since all layers are alike and the compiler takes minutes for them; BP has 2, and MP alone,
which does not tile the batch, 1 and a quarter of the batch: near the limit of memory the compiler computes again what
it could keep (rematerialisation, which the paper turned off). GNS has 6 of 24 steps, IT32 8 of 32 layers and 512 of
1,536 tokens; the UNet is whole. GNS's schedules beyond ES are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import autopart as ap
from experiments.models import gns, it32, t32, unet
from experiments.models.tactics import (
    BP,
    EMB,
    GNS_ES,
    IT32_BP,
    IT32_MP,
    IT32_MQ,
    MP,
    UNET_MP,
    UNET_Z2,
    UNET_Z3,
    Z2,
    Z3,
)

GNS_MP = ap.ManualPartition({"params": {"*/layers/0/weight": 1, "*/layers/2/weight": 1}}, axis="model", name="MP")
GNS_Z3 = ap.ManualPartition(
    {"params": ap.FIRST_DIVISIBLE_DIM, "opt_state": ap.FIRST_DIVISIBLE_DIM}, axis="batch", name="Z3"
)

V3 = ("v3:4x4", ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3"))
V5E = ("v5e:2x4", ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e"))


@dataclass(frozen=True)
class Pair:
    """A program, a schedule, and where it is compiled for."""

    model: str
    schedule: tuple[Any, ...]
    on: tuple[str, ap.Mesh]
    module: ModuleType
    config: Any

    @property
    def name(self) -> str:
        return f"{self.model} {'+'.join(t.name for t in self.schedule) or 'none'} {self.on[0]}"

    def lower(self) -> ap.Lowered:
        donated = (1,) if self.module is it32 else (0, 1)
        step = ap.jit(self.module.step(self.config), self.on[1], list(self.schedule), donate_argnums=donated)
        return step.lower(*self.module.abstract_args(self.config))


T32 = replace(t32.Config(), layers=4)
T32_TWO_LAYERS = replace(t32.Config(), layers=2)
T32_SMALL = replace(t32.Config(), layers=1, batch=12)
GNS = replace(gns.Config(), steps=6)
IT32 = replace(it32.Config(), layers=8, steps=512)
UNET = unet.Config()

PAIRS = (
    Pair("T32", (BP,), V3, t32, T32_TWO_LAYERS),
    Pair("T32", (BP, MP), V3, t32, T32),
    Pair("T32", (BP, MP, Z2), V3, t32, T32),
    Pair("T32", (BP, MP, Z3), V3, t32, T32),
    Pair("T32", (BP, MP, Z3, EMB), V3, t32, T32),
    Pair("T32", (MP,), V3, t32, T32_SMALL),
    Pair("T32", (BP, MP, Z3), V5E, t32, replace(T32, batch=12)),
    Pair("UNet", (BP,), V3, unet, UNET),
    Pair("UNet", (BP, UNET_MP), V3, unet, UNET),
    Pair("UNet", (BP, UNET_Z2), V3, unet, UNET),
    Pair("UNet", (BP, UNET_Z3), V3, unet, UNET),
    Pair("UNet", (BP,), V5E, unet, UNET),
    Pair("GNS", (GNS_ES,), V3, gns, GNS),
    Pair("GNS", (GNS_ES, GNS_MP), V3, gns, GNS),
    Pair("GNS", (GNS_MP,), V3, gns, GNS),
    Pair("GNS", (GNS_ES, GNS_Z3), V3, gns, GNS),
    Pair("IT32", (IT32_BP,), V3, it32, IT32),
    Pair("IT32", (IT32_BP, IT32_MP), V3, it32, IT32),
    Pair("IT32", (IT32_BP, IT32_MP, IT32_MQ), V3, it32, IT32),
    Pair("IT32", (IT32_MP,), V3, it32, IT32),
)
