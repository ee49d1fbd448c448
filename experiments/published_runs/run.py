"""A published run: what was published, the settings that it was published with, and its estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import autopart as ap
from experiments.published_runs.decoder import Config, abstract_args, step

EMB_DIM = dict(embed=1, head=0, norm1=1, norm2=1, norm=0, q=1, k=1, v=1, o=3, gate=1)
QKV = ("query_proj", "key_proj", "value_proj")
PRODUCTS = (*QKV, "out_proj", "mlpwi0", "mlpwi1", "mlpwo")
L8 = dict(emb=4096, heads=32, kv=8, mlp=14336, layers=32)
L70 = dict(emb=8192, heads=64, kv=8, mlp=28672, layers=80)
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
    stored: str = ""
    """Of which state the parts are stored: "opt_state" where parameters are whole on each device; "" for all."""
    microbatches: int = 1
    """Parts of the batch, one after the other, or through the stages of an axis `pipe`."""
    repeats: int = 1
    """Runs of layers of a stage: what others call virtual stages."""
    pipelined: bool = False
    """Whether loops gather a trip ahead what they do not change, and reduce beside the next trip."""
    stream: int = 2
    """The dim of [batch, tokens, emb] that `tensor` tiles between layers: 1 is sequence parallelism."""

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def on_tpu(self) -> bool:
        return self.device.startswith("tpu")

    @property
    def cohort(self) -> str:
        """What the summary has it among."""
        within = self.devices <= 8 or self.device.startswith("a100")
        return "TPU" if self.on_tpu else "A100, and one node" if within else "H100 and later, over nodes"

    def tactics(self) -> list[ap.Tactic]:
        """As the recipes shard: heads, hidden dims and the vocabulary over `tensor`, the model's dim over the rest."""
        data = tuple(axis for axis in self.mesh if axis not in ("tensor", "pipe"))
        experts, inputs = bool(self.config.experts), {"tokens": 0, "targets": 0}
        found: list[ap.Tactic] = []
        if "pipe" in self.mesh:
            schedule = "circular" if self.repeats > 1 else "1f1b"
            found.append(ap.Pipeline("pipe", self.microbatches, inputs, schedule=schedule, repeats=self.repeats))
        elif self.microbatches > 1:
            found.append(ap.Microbatch(inputs, self.microbatches))
        if "tensor" in self.mesh:
            tensor = TENSOR_DIM | dict(wi0=2 + experts, wi1=2 + experts, wo=1 + experts)
            found.append(ap.ManualPartition({"state": _by_leaf(tensor, ap.UNKNOWN)}, axis="tensor", name="TP"))
            found.append(
                ap.ManualPartition({"stream": self.stream + ("pipe" in self.mesh)}, axis="tensor", name="stream")
            )
        parts = EMB_DIM | dict(wi0=1 + experts, wi1=1 + experts, wo=2 + experts)
        found.append(ap.ManualPartition(inputs, axis=_axes(data), name="BP"))
        state = {"state": _by_leaf(parts, ap.REPLICATED, self.stored)}
        return [*found, ap.ManualPartition(state, axis=_axes(self.sharded), name="FSDP")]

    def lower(self) -> ap.Lowered:
        """The step as it was run."""
        mesh = ap.Mesh(self.mesh, device=self.device)
        return ap.jit(step(self.config), mesh, self.tactics(), donate_argnums=(0,)).lower(*abstract_args(self.config))

    def row(self) -> dict[str, Any]:
        """The figures of the run and of its estimate."""
        options = ap.costmodel.SimulatorOptions(pipelined=self.pipelined)
        estimate = ap.costmodel.estimate(self.lower().program, options=options)
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


def _by_leaf(dims: dict[str, int], otherwise: Any, within: str = "") -> Any:
    return lambda path, shape: dims.get(path.split("/")[-1], otherwise) if within in path else otherwise
