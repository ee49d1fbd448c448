"""What a step makes of its hardware: MFU, tokens a second, and what keeps each mesh axis's wires busy.

    MFU 41.2 %            2.1e18 flop of products in 1.9 s on 256 devices of 459 TFLOP/s
    551 k tokens/s        16 x 65,536 tokens in 1.9 s
    data    0.21 s        16 chips of a torus ring
    model   0.05 s        8 chips of a torus ring

Flop are those of the program's matrix products and convolutions, whole and counted once, each beside the peak rate of
its own type. What a `jax.checkpoint` or `ap.Recompute` computes again is among them, so it is then called HFU (hardware
flop utilization), as in *PaLM: Scaling Language Modeling with Pathways*, appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autopart.core.program import Program
from autopart.costmodel.compiled.facts.op_classes import matrix_flop
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.estimate import CollectiveTotal, collective_steps
from autopart.costmodel.hardware.devices import DTYPE_CLASSES, Device


def product_flop(program: Program) -> dict[str, float]:
    """Flop of matrix products and convolutions in a step, by element type of what they read."""
    flop = np.array([matrix_flop(spec) for spec in program.specs], float)
    times = np.bincount(program.op_spec, program.scope_trips[program.op_scope], len(flop))
    found: dict[str, float] = {}
    for number in np.flatnonzero(flop * times):
        dtype = program.specs[number].operands[0].dtype
        found[dtype] = found.get(dtype, 0.0) + float(flop[number] * times[number])
    return found


def utilization(program: Program, device: Device, devices: int, step_s: float) -> float:
    """Share of the devices' peak rate that the program's products take in a step: 0.41 of 1."""
    least_s = sum(flop / device.peak(dtype) for dtype, flop in product_flop(program).items()) / devices
    return least_s / step_s if step_s > 0 else 0.0


def computes_again(program: Program) -> bool:
    """True if some of the flop may be of results that were there before: those stand behind barriers."""
    return bool(program.barriers)


def tokens_found(program: Program) -> tuple[int, str] | None:
    """(tokens in a step, the input they are counted in): the largest input of integers with rows that is no state."""
    state = set(program.ties.values())
    found = [
        (math.prod(type_.shape), f"{name}: {type_}")
        for place, (name, value) in enumerate(zip(program.argument_names, program.arguments, strict=True))
        if place not in state and len((type_ := program.type_of(value)).shape) >= 2 and type_.dtype in _INTEGERS
    ]
    return max(found, default=None)


_INTEGERS = ("i32", "ui32", "i64", "ui64", "i16", "ui16", "si32", "si64")


def seconds_by_axis(run: Simulation) -> Mapping[tuple[str, ...], CollectiveTotal]:
    """Axes of the mesh -> their collectives in a step, the most seconds first; together the run's collectives."""
    found: dict[tuple[str, ...], CollectiveTotal] = {}
    for step, trips, saved_s in collective_steps(run):
        total = found.get(step.mesh_axes, CollectiveTotal(0, 0.0, 0.0, 0.0))
        found[step.mesh_axes] = total.with_one(step, trips, saved_s)
    return dict(sorted(found.items(), key=lambda row: -row[1].seconds))


def wires(run: Simulation, axes: tuple[str, ...]) -> str:
    """What the axes run over, in words."""
    lines = dict(zip(run.links.mesh.axis_names, run.links.describe().splitlines(), strict=True))
    return "; ".join(lines[axis].split("  ", 1)[1] for axis in axes)


@dataclass(frozen=True, eq=False)
class Rooflines:
    """Kernels of a step beside the roofline of their device: arrays with an entry for each that takes time.

    seconds            in a step, all runs
    flop_per_s         of the matrix unit if there is matrix work, else of the vector unit
    flop_per_byte      the same flop over bytes through HBM
    is_product         whether there is matrix work
    share              of the peak rate of its type; of HBM's bandwidth for the others
    dtype              of products: place in `DTYPE_CLASSES`
    """

    node: np.ndarray
    seconds: np.ndarray
    flop_per_s: np.ndarray
    flop_per_byte: np.ndarray
    is_product: np.ndarray
    share: np.ndarray
    dtype: np.ndarray

    def peak(self, device: Device) -> float:
        """The device's peak rate for the type that products spend most of their time on."""
        seconds = np.bincount(self.dtype[self.is_product], self.seconds[self.is_product], len(DTYPE_CLASSES))
        return device.peak(DTYPE_CLASSES[int(np.argmax(seconds))] if seconds.any() else "bf16")

    def product_share(self) -> float:
        """Share of the peak that products reach while they run."""
        seconds = float(self.seconds[self.is_product].sum())
        return float((self.share * self.seconds)[self.is_product].sum()) / seconds if seconds else 0.0


def rooflines(run: Simulation) -> Rooflines:
    """The kernels of a run that take time."""
    nodes, device = run.graph.nodes, run.links.device
    node = np.flatnonzero((run.node_s > 0) & (nodes["kind"] == 0))
    leads = np.bincount(run.leader, nodes["matrix_flop"], len(nodes))[node]
    vector = np.bincount(run.leader, nodes["vector_flop"], len(nodes))[node]
    once_s, in_bytes = run.node_s[node], np.maximum(run.node_hbm_bytes[node] + run.node_beside_bytes[node], 1.0)
    is_product = leads > 0
    flop = np.where(is_product, leads, vector)
    dtype = np.clip(nodes["matrix_dtype"][node], 0, None).astype(np.int64)
    peaks = np.array([device.peak(each) for each in DTYPE_CLASSES])[dtype]
    share = np.where(is_product, leads / once_s / peaks, in_bytes / once_s / device.hbm_bytes_per_s)
    return Rooflines(node, once_s * run.node_trips[node], flop / once_s, flop / in_bytes, is_product, share, dtype)
