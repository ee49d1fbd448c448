"""What is compared: a program, a schedule that was written or found, and where it runs.

    CASES["T32 BP+MP v5e:2x4"].pair(devices)  ->  Pair: our program and XLA's, with the same in and out shardings

Programs have as few parts as show what happens, since the compiler takes its time for each kernel: one layer of T32 at
half its width, 2 of 24 steps of GNS with MLPs of 3 layers, one level of the UNet, one layer and 64 tokens of IT32.
Those without a topology are small enough to run on 8 host devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

import autopart as ap
from autopart.spmd.run import jax_mesh, on_mesh
from experiments.automatic.cases import IT32_SCHEDULES, UNET_SCHEDULES
from experiments.models import gns, it32, t32, unet
from experiments.models.outside import train_states as outside
from experiments.models.outside.train_states import Model
from experiments.models.tactics import BP, EMB, GNS_ES, MP, Z2, Z3
from experiments.simulator_accuracy.pairs import GNS_MP, GNS_Z3

V5E = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e")
V3 = ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3")
HOST_MESH = ap.Mesh({"batch": 4, "model": 2}, device="cpu_host")
FOUND = ap.AutomaticPartition(("batch", "model"), budget=ap.Budget(400), name="found", progress=False)

_T32 = ([BP], [BP, MP], [BP, MP, Z2], [BP, MP, Z3], [BP, MP, Z3, EMB])
T32 = {"+".join(tactic.name for tactic in schedule): schedule for schedule in _T32}
GNS = {"ES": [GNS_ES], "ES+MP": [GNS_ES, GNS_MP], "ES+Z3": [GNS_ES, GNS_Z3]}
IT32 = {name: IT32_SCHEDULES[name] for name in ("BP", "BP+MP", "BP+MP+MQ")}


def of_module(module: Any, config: Any, schedules: dict[str, list[ap.Tactic]]) -> Model:
    """One of the paper's models."""
    return Model(module.step(config), module.abstract_args(config), schedules)


@dataclass(frozen=True)
class Pair:
    """The same step twice, as `jax.stages.Lowered` for the same devices, with equal shardings of inputs and outputs.

    `estimate` is what the simulator says of ours.
    """

    ours: Any
    xla: Any
    estimate: ap.Estimate | None


@dataclass(frozen=True)
class Case:
    """A program, a schedule, and the mesh that it is for; `topology` is "" for host devices."""

    model: str
    schedule: str
    topology: str
    mesh: ap.Mesh
    load: Callable[[], Model]
    donated: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.model} {self.schedule} {self.topology or 'host'}"

    def lower(self, model: Model) -> ap.Lowered:
        """Our program."""
        tactics = [FOUND] if self.schedule == "found" else model.schedules[self.schedule]
        return ap.jit(model.step, self.mesh, tactics, donate_argnums=self.donated).lower(*model.args)

    def pair(self, devices: list[Any]) -> Pair:
        """Both programs for the first of `devices`, not yet compiled."""
        model, mesh = self.load(), jax_mesh(self.mesh, devices)
        low = self.lower(model)
        theirs = of_xla(low, model.step, model.args, mesh, self.donated)
        return Pair(on_mesh(low.program, low.exported, mesh).lower(), theirs, low.estimate)


def of_xla(low: ap.Lowered, step: Callable[..., Any], args: Any, mesh: Any, donated: tuple[int, ...]) -> Any:
    """XLA's program of a step with the shardings of ours, not yet compiled."""

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda s: NamedSharding(mesh, s.spec), tree)

    (inputs, _), outputs = placed(low.in_shardings), placed(low.out_shardings)
    return jax.jit(step, in_shardings=inputs, out_shardings=outputs, donate_argnums=donated, keep_unused=True).lower(
        *args
    )


def _cases() -> dict[str, Case]:
    """Every case by name: on each topology, all schedules of a program and what a search finds."""
    short = replace(it32.Config(), layers=1, steps=64)
    narrow = replace(t32.Config(), layers=1, model_dim=2048, heads=16, vocabulary=16_000, sequence=512)
    tiny = replace(t32.Config(), layers=2, model_dim=256, heads=8, vocabulary=2048, batch=8, sequence=64)
    found = [
        *_of("T32", t32, narrow, T32),
        *_of("GNS", gns, replace(gns.Config(), steps=2, mlp_layers=3), GNS),
        *_of("UNet", unet, replace(unet.Config(), blocks=1, levels=1), UNET_SCHEDULES),
        *_of("IT32", it32, short, IT32, donated=(1,)),
        *_of_outside("GPT", outside.gpt, 8, *outside.LOGITS),
        *_of_outside("GPT bf16", partial(outside.gpt, dtype=jnp.bfloat16), 8, *outside.LOGITS),
        *_of_outside("ViT", outside.vit, 16),
        *_of_outside("Mixer", outside.mixer, 16),
        *_on_host("T32", t32, tiny, T32),
        *_on_host("GNS", gns, replace(gns.Config(), steps=3, hidden=128, latent=64, nodes=256, edges=2048), GNS),
        *_on_host("UNet", unet, replace(unet.SMALL, batch=16), UNET_SCHEDULES),
        *_on_host("IT32", it32, replace(it32.SMALL, batch=16, steps=32), IT32, donated=(1,)),
    ]  # fmt: skip
    small = {
        "GPT": lambda: outside.gpt(8, 2, 128, 4, 64),
        "ViT": lambda: outside.vit(8, 2, 128, 4, 64),
        "Mixer": lambda: outside.mixer(8, 2, 128, 64),
    }
    found += [Case(m, s, "", HOST_MESH, load, (0,)) for m, load in small.items() for s in (*outside.SCHEDULES, "found")]
    return {case.name: case for case in found}


def _of(name: str, module: Any, config: Any, schedules: Any, donated: tuple[int, ...] = (0, 1)) -> list[Case]:
    """A model of the paper on both topologies; on the smaller one with a quarter of the batch, if it has one."""
    quarter = replace(config, batch=config.batch // 4) if hasattr(config, "batch") else config
    return [
        Case(name, s, topology, mesh, lambda own=own: of_module(module, own, schedules), donated)
        for topology, mesh, own in (("v5e:2x4", V5E, quarter), ("v3:4x4", V3, config))
        for s in (*schedules, "found")
    ]


def _of_outside(name: str, model: Callable[[int], Model], batch: int, *more: str) -> list[Case]:
    return [
        Case(name, s, topology, mesh, lambda size=size: model(size), (0,))
        for topology, mesh, size in (("v5e:2x4", V5E, batch), ("v3:4x4", V3, 4 * batch))
        for s in (*outside.SCHEDULES, *more, "found")
    ]


def _on_host(name: str, module: Any, config: Any, schedules: Any, donated: tuple[int, ...] = (0, 1)) -> list[Case]:
    return [
        Case(name, s, "", HOST_MESH, lambda: of_module(module, config, schedules), donated)
        for s in (*schedules, "found")
    ]


CASES = _cases()
