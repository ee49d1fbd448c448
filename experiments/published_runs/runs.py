"""The runs: what was published, where, and the settings that it was published with.

    runs()["Llama-2-70B, 256 v6e"].published        tokens per second and device

MaxText      docs, reference/models/tiering (v6e, v5p); batch, mesh and kept names from the recipes at their tags
MaxText MFU  docs, guides/optimization/custom_model: MFU with all scores of attention counted; a v5p-128 has 64 chips
JAX-Toolbox  NVIDIA, READMEs of rosetta: MaxText on one node of H100; Pax with Transformer Engine in bf16
fms-fsdp     foundation-model-stack, README: PyTorch FSDP; 400 Gb/s to a node of A100, 800 Gb/s to a node of H100
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import autopart as ap
from autopart.costmodel.hardware.devices import device
from experiments.published_runs.decoder import Config, abstract_args, step

QKV = ("query_proj", "key_proj", "value_proj")
PRODUCTS = (*QKV, "out_proj", "mlpwi0", "mlpwi1", "mlpwo")
EMB_DIM = dict(embed=1, head=0, norm1=1, norm2=1, norm=0, q=1, k=1, v=1, o=3, gate=1)
TENSOR_DIM = dict(embed=0, head=1, q=2, k=2, v=2, o=1)


@dataclass(frozen=True)
class Run:
    """A published run: `sharded` are the axes over which parameters and state are stored in parts."""

    name: str
    source: str
    device: str
    mesh: dict[str, int]
    sharded: tuple[str, ...]
    published: float
    """Tokens per second and device."""
    config: Config
    offloaded: tuple[str, ...] = ()
    """Names that the recipe keeps in the host's memory; the estimate keeps them on the device."""
    note: str = ""

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def on_tpu(self) -> bool:
        return self.device.startswith("tpu")

    def tactics(self) -> list[ap.Tactic]:
        """As the recipes shard: heads, hidden dims and the vocabulary over `tensor`, the model's dim over the rest."""
        data = tuple(axis for axis in self.mesh if axis != "tensor")
        experts = bool(self.config.experts)
        found: list[ap.Tactic] = []
        if "tensor" in self.mesh:
            tensor = TENSOR_DIM | dict(wi0=2 + experts, wi1=2 + experts, wo=1 + experts)
            found.append(ap.ManualPartition({"state": _by_leaf(tensor, ap.UNKNOWN)}, axis="tensor", name="TP"))
            found.append(ap.ManualPartition({"stream": 2}, axis="tensor", name="stream"))
        parts = EMB_DIM | dict(wi0=1 + experts, wi1=1 + experts, wo=2 + experts)
        found.append(ap.ManualPartition({"tokens": 0, "targets": 0}, axis=_axes(data), name="BP"))
        state = {"state": _by_leaf(parts, ap.REPLICATED)}
        return [*found, ap.ManualPartition(state, axis=_axes(self.sharded), name="FSDP")]

    def lower(self) -> ap.Lowered:
        """The step as it was run."""
        mesh = ap.Mesh(self.mesh, device=self.device)
        return ap.jit(step(self.config), mesh, self.tactics(), donate_argnums=(0,)).lower(*abstract_args(self.config))

    def row(self) -> dict[str, Any]:
        """The figures of the run and of its estimate."""
        estimate = self.lower().estimate
        assert estimate is not None
        estimated = self.config.batch * self.config.tokens / self.devices / estimate.step_s
        return {
            "name": self.name, "source": self.source, "device": self.device, "mesh": self.mesh, "note": self.note,
            "parameters": self.config.parameters, "published": round(self.published, 1),
            "estimated": round(estimated, 1), "ratio": round(estimated / self.published, 3),
            "step_s": round(estimate.step_s, 4), "compute_s": round(estimate.compute_s, 4),
            "collective_s": round(estimate.collective_s, 4), "peak_gb": round(estimate.peak_bytes / 1e9, 1),
            "offloaded_gb": round(self.offloaded_bytes / 1e9, 1), "fits": estimate.fits,
        }  # fmt: skip

    @property
    def offloaded_bytes(self) -> float:
        """Bytes of a device that the recipe keeps on the host."""
        config = self.config
        widths = dict(decoder_layer_input=config.emb, out_proj=config.emb, query_proj=config.heads * config.width)
        widths |= dict.fromkeys(("key_proj", "value_proj"), config.kv * config.width)
        tokens = config.batch * config.tokens / self.devices
        return sum(2 * widths[name] * config.layers * tokens for name in self.offloaded)


def _axes(axes: tuple[str, ...]) -> str | tuple[str, ...]:
    return axes if len(axes) > 1 else axes[0]


def _by_leaf(dims: dict[str, int], otherwise: Any) -> Any:
    return lambda path, shape: dims.get(path.split("/")[-1], otherwise)


def runs() -> dict[str, Run]:
    """All of them, by name."""
    return {run.name: run for run in (*_maxtext(), *_maxtext_mfu(), *_gpus())}


L8 = dict(emb=4096, heads=32, kv=8, mlp=14336, layers=32)
L70 = dict(emb=8192, heads=64, kv=8, mlp=28672, layers=80)


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


def _gpus() -> Iterator[Run]:
    """Nodes of eight."""
    L7: dict[str, Any] = dict(emb=4096, heads=32, kv=32, mlp=11008, layers=32, vocab=32000, tokens=4096, one_hot=False)
    both: dict[str, Any] = L70 | dict(vocab=32000, tokens=4096, one_hot=False)
    gpt: dict[str, Any] = dict(vocab=50304, tokens=2048, one_hot=False, gated=False)
    kept = (*PRODUCTS, "context")
    config = Config(batch=16, kept=kept, **L7)
    yield Run("Llama-2-7B, 8 H100", "JAX-Toolbox", "h100", {"gpu": 8}, ("gpu",), 4096 * 22.19 / 8, config)
    nodes = {"node": 32, "gpu": 8}
    config = Config(batch=2048, emb=4096, heads=32, kv=32, mlp=16384, layers=24, **gpt)
    yield Run("GPT-5B, 256 A100", "JAX-Toolbox", "a100_80gb", nodes, ("node", "gpu"), 2048 * 598.83 / 256, config)
    config = Config(batch=1536, emb=12288, heads=96, kv=96, mlp=49152, layers=96, **gpt)
    yield Run("GPT-175B, 256 A100", "JAX-Toolbox", "a100_80gb", nodes, ("node", "gpu"), 2048 * 19.62 / 256, config)
    for device_, short, few, small, large in (("a100_80gb", "A100", 16, 4550, 410), ("h100", "H100", 12, 9600, 890)):
        config = Config(batch=16 * few, kept=None, **L7)
        nodes = {"node": few, "gpu": 8}
        yield Run(f"Llama-2-7B, {8 * few} {short}", "fms-fsdp", device_, nodes, ("gpu",), small, config)
        note = "" if few == 16 else "published of 96 GPUs, which do not divide 8,192 rows of weights; estimated for 128"
        nodes, config = {"node": 16, "gpu": 8}, Config(batch=256, **both)
        yield Run(f"Llama-2-70B, 128 {short}", "fms-fsdp", device_, nodes, ("node", "gpu"), large, config, note=note)
