"""Small programs for cost tests, lowered without devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import autopart as ap
from autopart.costmodel import Device, SimulatorOptions, Switch, devices, estimate, register_device
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.simulator import Simulation
from autopart.costmodel.hardware.devices import HBM, LAUNCH

FLOP_PER_S, BYTES_PER_S, LAUNCH_S = 1e12, 1e10, 1e-6
LINK_BYTES_PER_S, LATENCY_S = 1e9, 1e-5
"""Of a `plain_device`."""


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def lowered(function, *args, mesh=None, schedule=(), donate=()):
    """The `Lowered` of `function` on `mesh` (default: one TPU v5e)."""
    mesh = mesh or ap.Mesh({"x": 1}, device="tpu_v5e")
    return ap.jit(function, mesh, list(schedule), donate_argnums=donate).lower(*args)


def mlp_step(params, x):
    """SGD on a linear stack: params are square matrices, donated by callers."""

    def loss(params, x):
        for w in params:
            x = x @ w
        return jnp.sum(x)

    return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params, x))


def plain_device(name, **changes):
    """The name of a device of round figures: no padding, no cache, nothing fused around matmuls, nothing combined."""
    if name not in devices():
        entry = dict(
            peak_flop_per_s={"f32": FLOP_PER_S}, hbm_bytes=1e12, hbm_bytes_per_s=BYTES_PER_S, hbm_efficiency=1.0,
            matmul_efficiency={"": 1.0}, vector_flop_per_s=FLOP_PER_S, launch_s=LAUNCH_S, matmul_launch_s=LAUNCH_S,
            fast=Switch(64, LINK_BYTES_PER_S, LATENCY_S), source="made up for a test",
        )  # fmt: skip
        register_device(Device(name, **(entry | changes)))
    return name


def simulated(function, *args, device, ways=1, schedule=(), donate=(), **options) -> Simulation:
    """One run of `function` on `ways` devices along the axis "x"; `options` are those of the simulator."""
    mesh = ap.Mesh({"x": ways}, device=device)
    low = lowered(function, *args, mesh=mesh, schedule=schedule, donate=donate)
    return estimate(low.program, options=SimulatorOptions(**options)).simulation


def nodes_of(run: Simulation, *kinds: str) -> list[int]:
    """The nodes whose root is an op of one of these kinds, in program order; kernels only."""
    program, nodes = run.local.program, run.graph.nodes
    return [k for k in kernels(run) if program.spec(int(nodes["subject"][k])).kind in kinds]


def kernels(run: Simulation) -> list[int]:
    """The nodes that are kernels or run in one, in program order."""
    return [k for k, kind in enumerate(run.graph.nodes["kind"]) if kind == KERNEL]


def launched(run: Simulation) -> list[int]:
    """The kernels that are launched: those that join no other."""
    return [k for k in kernels(run) if run.leader[k] == k]


def moves(run: Simulation) -> list[int]:
    """The nodes that are redistributions, in program order."""
    return [k for k, kind in enumerate(run.graph.nodes["kind"]) if kind != KERNEL]


def between(run: Simulation) -> float:
    """Most bytes at any time beside arguments and outputs."""
    return run.peak_bytes - run.argument_bytes - run.output_bytes


def copies_s(run: Simulation) -> float:
    """Seconds of the copies into other layouts that stand beside kernels."""
    copied = run.arrays.ops["copied_bytes"]
    return float(copied.sum() / run.device_row[HBM] + (copied > 0).sum() * run.device_row[LAUNCH])
