"""The runs: what was published, where, and the settings that it was published with.

    runs()["Llama-2-70B, 256 v6e"].published        tokens per second and device

MaxText      docs, reference/models/tiering (v6e, v5p); batch, mesh and kept names from the recipes at their tags
MaxText MFU  docs, guides/optimization/custom_model: MFU with all scores of attention counted; a v5p-128 has 64 chips

Runs on GPUs are in `gpu_runs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from autopart.costmodel.hardware.devices import device
from experiments.published_runs import gpu_runs
from experiments.published_runs.decoder import Config
from experiments.published_runs.run import L8, L70, PRODUCTS, QKV, Run


def runs() -> dict[str, Run]:
    """All of them, by name."""
    return {run.name: run for run in (*_maxtext(), *_maxtext_mfu(), *gpu_runs.runs())}


def _maxtext() -> Iterator[Run]:
    """Over one axis, `fsdp`."""

    def run(name: str, device_: str, devices: int, each: int, published: float, **settings: Any) -> Run:
        offloaded, note = settings.pop("offloaded", ()), settings.pop("note", "")
        config = Config(batch=each * devices, **settings)
        return Run(name, "MaxText", device_, {"fsdp": devices}, ("fsdp",), published, config, offloaded, note)

    v6e, v5p, stream = "tpu_v6e", "tpu_v5p", ("decoder_layer_input",)
    old: dict[str, Any] = dict(vocab=32000, tokens=4096)
    new: dict[str, Any] = dict(vocab=128256, tokens=8192)
    out = ("out_proj", *QKV)
    yield run("Llama-2-70B, 256 v6e", v6e, 256, 3, 905, kept=QKV, offloaded=QKV, **L70, **old)
    yield run("Llama-3.1-8B, 256 v6e", v6e, 256, 4, 7207, kept=out, offloaded=stream + out, **L8, **new)
    yield run("Llama-3.1-70B, 256 v6e", v6e, 256, 5, 960, kept=QKV, offloaded=stream + QKV, **L70, **new)
    yield run(
        "Mixtral-8x7B, 256 v6e", v6e, 256, 12, 3899, kept=out, offloaded=stream + out, experts=8, **L8, **old,
        note="experts have room for 1.25 of an even share; the run's own log says 3,645",
    )  # fmt: skip
    yield run("Llama-2-70B, 256 v5p", v5p, 256, 4, 692, kept=(*QKV, "out_proj", "mlpwo"), **L70, **old)
    yield run(
        "Mixtral-8x7B, 128 v5p", v5p, 128, 36, 2909, experts=8, capacity=None, weights="bfloat16", **L8, **old,
        note="no row is dropped; weights in bf16",
    )  # fmt: skip


def _scaled(billions: int) -> dict[str, int]:
    """The sizes that MaxText's `global_parameter_scale` gives."""
    base, more = divmod(int(math.log2(billions)), 3)
    heads, emb = base + (more > 0), base + (more > 1)
    return dict(emb=2048 << emb, heads=16 << heads, kv=16 << heads, mlp=7168 << heads, layers=16 << base)


def _maxtext_mfu() -> Iterator[Run]:
    """Dense decoders over `fsdp` and `tensor`, published as a share of the peak rate."""
    for billions, chips, tensor, each, mfu in (
        (32, 64, 4, 6, 0.7147), (64, 64, 4, 3, 0.7031), (256, 512, 8, 1, 0.6709), (1024, 1024, 16, 2, 0.5535),
    ):  # fmt: skip
        kept = PRODUCTS if billions < 1024 else ()
        config = Config(batch=each * chips, vocab=32000, tokens=2048, kept=kept, **_scaled(billions))
        published = mfu * device("tpu_v5p").peak_flop_per_s["bf16"] / config.flop_per_token
        mesh = {"fsdp": chips // tensor, "tensor": tensor}
        yield Run(f"dense {billions} B, {chips} v5p", "MaxText MFU", "tpu_v5p", mesh, ("fsdp",), published, config)
