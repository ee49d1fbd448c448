"""The compiler as cost model: XLA itself compiles the device-local program, ahead of time and without hardware.

    XlaCompile("v5e:2x4")(local, mesh)       TPU, by libtpu: peak memory, and cycles it estimates for each kernel
    XlaCompile("h100")(local, mesh)          GPU: peak memory, and its schedule, priced by our rooflines and links
    XlaCompile("h100:1x4x8")(local, mesh)    the same over four hosts of eight
    XlaCompile("gpu")(local, mesh)           the GPUs of this machine
    XlaCpuMemory()(local, mesh)              XLA:CPU's memory analysis, on simulated host devices

Tens of seconds a program: for a final look at a few candidates, and to check the simulator. libtpu
(`pip install autopart[tpu]`) lets one process on a machine compile at a time; others wait (`libtpu_turn.py`). XLA's GPU
compiler (`pip install autopart[gpu-compiler]`) needs no GPU, driver or CUDA, and several may compile at once.

Cycles do not price links: for a TPU, `collective_s` is the simulator's. Loops count by their known trip counts. XLA:CPU
widens bf16 and does not fuse into matmuls: its memory is 1.3 to 2.9 times a TPU's, so it bounds, and does not predict.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from autopart.base.arguments import TEXT, check_fields, number
from autopart.base.errors import CallError
from autopart.base.units import bytes_text
from autopart.core.mesh import Mesh
from autopart.costmodel.estimate import CollectiveTotal, Estimate, estimate
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.gpu_targets import AMPLE_BYTES, is_gpu_topology
from autopart.costmodel.xla.hlo_collectives import Collective, seconds
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.two_streams import replay
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.emission.export import export
from autopart.spmd.run import jax_mesh, on_mesh

_CORES = {
    "tpu v2": ("tpu_v2", 0.70e9), "tpu v3": ("tpu_v3", 0.94e9), "tpu v4": ("tpu_v4", 1.05e9),
    "tpu v5 lite": ("tpu_v5e", 1.5e9), "tpu v5": ("tpu_v5p", 1.75e9), "tpu v6 lite": ("tpu_v6e", 1.75e9),
    "tpu7x": ("tpu_v7", 2.2e9),
}  # fmt: skip
"""By JAX device kind: the device, and its clock, as published; v6e and v7 from peak flop over flop per cycle."""

CLOCK_HZ = {kind: clock_hz for kind, (_, clock_hz) in _CORES.items()}
"""Clock of a core by JAX device kind."""

DEVICE_CLOCK_HZ = dict(_CORES.values())
"""The same by name of the device in `DEVICES`."""

CUBLAS_BYTES = 28 * 2**20
"""What cuBLAS works in where it was tuned, 32 MiB, over what it is given without a GPU."""

_CUBLAS = '"__cublas$'
REMATERIALISED = ".remat"
"""What names of results have that XLA computes again."""


@dataclass(frozen=True)
class XlaCompile:
    """A cost model that compiles, for a TPU topology such as "v5e:2x4", for GPUs that need not be there, or for "gpu".

    GPUs are a name of `GPU_TARGETS`, such as "h100", alone or with slices, hosts and GPUs of a host: "h100:1x4x8". It
    needs one device per mesh position. `wait_s` is how long it waits for another process that compiles for TPU. A
    program that the compiler finds too large is an estimate with `fits=False`. Raises `CallError` if a compiler or a
    GPU is missing, there are fewer devices than the mesh has, or the wait was too short.

    XLA:GPU estimates no seconds. They are rooflines of its kernels, at the rates of the mesh's device, and its
    collectives, as it has combined them, on the mesh's links: `step_s` in the order of its schedule (`two_streams.py`),
    `serial_s` one after the other. `peak_bytes` is what the plan takes where nothing is computed again. Where XLA does
    that for want of memory, `fits` is about what is left then, and `why` has both.
    """

    topology: str
    wait_s: float = field(default=600.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, topology=TEXT, wait_s=number(0))

    def __call__(self, local: DeviceLocal, mesh: Mesh) -> Estimate:
        """What the compiler says: seconds from what it estimates or schedules, `peak_bytes` from its allocations."""
        devices = topology_devices(self.topology, mesh.size, self.wait_s)
        ours = estimate(local, mesh)
        try:
            compiled = compile_device_local(local, devices, self.topology)
        except jax.errors.JaxRuntimeError as error:
            return _too_large(ours, str(error))
        if devices[0].platform == "gpu":
            return self._on_gpu(ours, compiled, local, mesh)
        compute_s = compute_seconds(OptimisedHlo(text_of(compiled)), devices[0])
        return _with_memory(
            replace(
                ours, compute_s=compute_s, step_s=compute_s + ours.collective_s, serial_s=compute_s + ours.collective_s,
                overlapped_s=max(compute_s, ours.collective_s), simulation=None,
            ),
            compiled,
        )  # fmt: skip

    def _on_gpu(self, ours: Estimate, compiled: jax.stages.Compiled, local: DeviceLocal, mesh: Mesh) -> Estimate:
        """By the text of what was compiled for GPUs."""
        on, at_ease, text = device(ours.device), compiled, text_of(compiled)
        in_memory = allocated_bytes(compiled)
        if is_gpu_topology(self.topology) and (in_memory > on.hbm_bytes or REMATERIALISED in text):
            ample = topology_devices(self.topology, mesh.size, memory=AMPLE_BYTES)
            at_ease = compile_device_local(local, ample, self.topology)
        fits, own = in_memory <= on.hbm_bytes, allocated_bytes(at_ease)
        reasons = [f"{on.name} holds {bytes_text(on.hbm_bytes)}"] if not fits else []
        if own > in_memory:
            reasons.append(f"{bytes_text(in_memory)} where XLA computes results again for want of memory")
        found = replay(OptimisedHlo(text), mesh, on)
        ours = replace(
            ours, step_s=found.step_s, serial_s=found.compute_s + found.link_s, overlapped_s=found.step_s,
            compute_s=found.compute_s, collective_s=found.link_s, simulation=None,
            collectives=_totals(found.collectives, mesh, ours.collectives),
        )  # fmt: skip
        return replace(_with_memory(ours, at_ease), fits=fits, why="; ".join(reasons))


def _totals(
    found: Mapping[Collective, int], mesh: Mesh, ours: Mapping[str, CollectiveTotal]
) -> dict[str, CollectiveTotal]:
    """Collectives that a compiler left, by kind; what they take one by one is `ours`."""
    totals = {kind: CollectiveTotal(0, 0.0, 0.0, total.uncombined_s) for kind, total in ours.items()}
    for (kind, axes, in_bytes), times in found.items():
        before, took = totals[kind], times * seconds((kind, axes, in_bytes), mesh)
        moved = times * in_bytes * (math.prod(size for _, size in axes) if kind == "all_gather" else 1)
        totals[kind] = replace(
            before, count=before.count + times, seconds=before.seconds + took, bytes=before.bytes + moved
        )
    return totals


def text_of(compiled: jax.stages.Compiled) -> str:
    """The optimised text of what was compiled; raises `CallError` for a compiler that shows none."""
    text = compiled.as_text()
    if text is None:
        raise CallError("the compiler shows no text to find kernels in")
    return text


def allocated_bytes(compiled: Any) -> float:
    """Arguments, outputs that take no argument's place, and temporaries; on a GPU with what cuBLAS works in."""
    stats = compiled.memory_analysis()
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    found = stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes
    return float(found + (CUBLAS_BYTES if _CUBLAS in text_of(compiled) else 0))


def compute_seconds(module: OptimisedHlo, compiled_for: Any) -> float:
    """Seconds of compute of a step that was compiled for a TPU: estimated cycles at the clock of the core.

    Kernels that came with the program have no cycles. They take the seconds of the flop that they state, or of their
    bytes if these take longer, at the device's peak and at the rate that a streaming kernel gets. What states neither
    is in `Estimate.unknown_ops`.
    """
    name, clock_hz = _CORES[compiled_for.device_kind.lower()]
    of = device(name)
    peak, rate = of.peak("bf16") * of.efficiency("bf16"), of.hbm_bytes_per_s * of.hbm_efficiency
    given_s = sum(times * max(flop / peak, moved / rate) for flop, moved, times in module.given_kernels)
    return module.cycles / clock_hz + given_s


@dataclass(frozen=True)
class XlaCpuMemory:
    """A cost model whose `peak_bytes` is XLA:CPU's, on simulated host devices; seconds are the simulator's."""

    def __call__(self, local: DeviceLocal, mesh: Mesh) -> Estimate:
        """Needs as many CPU devices as the mesh has positions; raises `CallError` with the flag to set if not."""
        devices = jax.devices("cpu")
        return _with_memory(
            replace(estimate(local, mesh), simulation=None), compile_device_local(local, devices, "this host")
        )


def _too_large(ours: Estimate, message: str) -> Estimate:
    """The estimate of a program that the compiler refuses for its memory; raises `CallError` for any other refusal."""
    needed = _TEMPORARIES.search(message)
    if "RESOURCE_EXHAUSTED" not in message or needed is None:
        raise CallError("the compiler refuses the program", why=message.splitlines()[0])
    peak = ours.argument_bytes + float(needed.group(1)) * {"M": 2**20, "G": 2**30, "T": 2**40}[needed.group(2)]
    return replace(ours, peak_bytes=peak, fits=False, why=message.splitlines()[0], simulation=None)


def _with_memory(ours: Estimate, compiled: Any) -> Estimate:
    """`ours` with the compiler's memory: temporaries, arguments and outputs, less what is aliased."""
    stats = compiled.memory_analysis()
    return replace(
        ours, peak_bytes=allocated_bytes(compiled), argument_bytes=float(stats.argument_size_in_bytes),
        output_bytes=float(stats.output_size_in_bytes - stats.alias_size_in_bytes), fits=True, why="",
    )  # fmt: skip


@contextmanager
def _without_cpu_flags() -> Generator[None]:
    """Hides XLA's flags for CPUs: libtpu reads all when it first compiles, and ends the process at an unknown one."""
    given = os.environ.get("XLA_FLAGS")
    if given is not None:
        os.environ["XLA_FLAGS"] = " ".join(flag for flag in given.split() if not flag.startswith("--xla_cpu_"))
    try:
        yield
    finally:
        if given is not None:
            os.environ["XLA_FLAGS"] = given


def compile_device_local(
    local: DeviceLocal, devices: list[Any], where: str, numbered: bool = False
) -> jax.stages.Compiled:
    """The device-local program compiled for the first of `devices`; raises `CallError` where there are too few.

    With `numbered`, metadata of the compiled text names ops by number (`export`).
    """
    mesh = local.mesh
    if len(devices) < mesh.size:
        raise CallError(
            f"{where} has {len(devices)} devices, the mesh {mesh} needs {mesh.size}",
            hint="XLA_FLAGS=--xla_force_host_platform_device_count=N for CPU; a larger topology for TPU",
        )
    ready = on_mesh(local, export(local, numbered), jax_mesh(mesh, devices))
    with _without_cpu_flags() if devices[0].platform == "tpu" else nullcontext():
        return ready.compile()


_TEMPORARIES = re.compile(r"HLO temporaries \(([\d.]+)([MGT])\)")
