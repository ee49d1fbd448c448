"""The programs: a training step, its mesh, and the schedules that people try first.

data parallelism     DP(all axes)                       Megatron    FSDP(all axes but the last)+Megatron(the last)
ZeRO-3               FSDP(all axes)                     GNS: its edges in place of the batch
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import autopart as ap
from experiments.automatic.cases import workload_file
from experiments.models import gns, unet
from experiments.published_runs import decoder
from experiments.published_runs.runs import runs

V3 = ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3")
V5P_256 = ap.Mesh({"fsdp": 64, "tensor": 4}, device="tpu_v5p")
V5P_128 = ap.Mesh({"fsdp": 32, "tensor": 4}, device="tpu_v5p")
H100 = ap.Mesh({"node": 8, "gpu": 8}, device="h100")


@dataclass(frozen=True)
class Case:
    """A training step for a mesh; `lower` partitions it by a schedule."""

    name: str
    mesh: ap.Mesh
    lower: Callable[[Any], ap.Lowered]
    batch: str = "DP"
    """The named schedule that divides the data."""

    @property
    def by_hand(self) -> tuple[str, ...]:
        """Schedules by name."""
        *outer, last = self.mesh.axis_names
        everywhere, most = ",".join(self.mesh.axis_names), ",".join(outer)
        state = "FSDP({0})" if self.batch == "DP" else f"{self.batch}({{0}})+ZeRO3({{0}})"
        alone = f"{self.batch}({everywhere})", state.format(everywhere)
        return (*alone, f"{self.batch}({most})+Megatron({last})", f"{state.format(most)}+Megatron({last})")


def cases() -> Iterator[Case]:
    """All of them."""
    for name, run, mesh in (
        ("Llama-2-7B, 64 H100", "Llama-2-7B, 128 A100", H100),
        ("Llama-2-70B, 256 TPU v5p", "Llama-2-70B, 256 v5p", V5P_256),
        ("Mixtral-8x7B, 128 TPU v5p", "Mixtral-8x7B, 128 v5p", V5P_128),
    ):
        config = runs()[run].config
        config = dataclasses.replace(config, batch=config.batch // runs()[run].devices * mesh.size)
        yield _step(name, mesh, decoder.step(config), decoder.abstract_args(config), donated=(0,))
    for name, file in (
        ("GPT-2 XL, 64 H100", "hf_gpt2_xl_train"),
        ("BERT-large, 64 H100", "hf_bert_large_mlm"),
        ("Stable Diffusion's UNet, 64 H100", "sd_unet_train"),
    ):
        yield _file(name, H100, file)
    for name, model, batch in (("UNet, 32 TPU v3", unet, "DP"), ("graph network, 32 TPU v3", gns, "Edges")):
        config = model.Config()
        yield _step(name, V3, model.step(config), model.abstract_args(config), donated=(0, 1), batch=batch)


def _step(name: str, mesh: ap.Mesh, step: Any, args: Any, donated: tuple[int, ...], batch: str = "DP") -> Case:
    return Case(name, mesh, lambda tactics: ap.jit(step, mesh, tactics, donate_argnums=donated).lower(*args), batch)


def _file(name: str, mesh: ap.Mesh, file: str) -> Case:
    return Case(name, mesh, lambda tactics: ap.jit(workload_file(file), mesh, tactics).lower())
