"""The compiler as cost model: XLA itself compiles the device-local program, ahead of time and without hardware.

    XlaCompile(topology="v5e:2x4")(local, mesh)     TPU, by libtpu: peak memory, and cycles it estimates for each kernel
    XlaCompile("gpu")(local, mesh)                  the GPUs of this machine: peak memory, flop and bytes of its kernels
    XlaCpuMemory()(local, mesh)                     XLA:CPU's memory analysis, on simulated host devices

Tens of seconds a program: for a final look at a few candidates, and to check the simulator. libtpu
(`pip install autopart[tpu]`) lets one process on a machine compile at a time; others wait (`libtpu_turn.py`).

Cycles do not price links: `collective_s` is the simulator's. Loops count by their known trip counts. XLA:CPU widens
bf16 and does not fuse into matmuls: its memory is 1.3 to 2.9 times a TPU's, so it bounds, and does not predict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from autopart.core.arguments import TEXT, check_fields, number
from autopart.core.errors import CallError
from autopart.core.mesh import Mesh
from autopart.costmodel.estimate import Estimate, estimate
from autopart.costmodel.gpu_kernels import kernel_seconds
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.libtpu_turn import take_turn
from autopart.costmodel.optimised_hlo import OptimisedHlo
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.export import export
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


@dataclass(frozen=True)
class XlaCompile:
    """A cost model that compiles, for a TPU topology such as "v5e:2x4" or "v3:4x4", or for the GPUs at hand ("gpu").

    It needs one device per mesh position. `wait_s` is how long it waits for another process that compiles for TPU. A
    program that the compiler finds too large is an estimate with `fits=False`, its seconds the simulator's. Raises
    `CallError` if libtpu or a GPU is missing, there are fewer devices than the mesh has, or the wait was too short.

    On GPU the compiler estimates no seconds: they are rooflines of its kernels, at the rates of the mesh's device
    (`gpu_kernels.py`). That it compiles can be checked only where a GPU is; its texts of 19 programs are kept.
    """

    topology: str
    wait_s: float = field(default=600.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, topology=TEXT, wait_s=number(0))

    def __call__(self, local: DeviceLocal, mesh: Mesh) -> Estimate:
        """What the compiler says: `step_s` from what it estimates and our links, `peak_bytes` from its allocations."""
        devices = gpu_devices() if self.topology == "gpu" else topology_devices(self.topology, self.wait_s)
        ours = estimate(local, mesh)
        try:
            compiled = compile_device_local(local, devices, self.topology)
        except jax.errors.JaxRuntimeError as error:
            return _too_large(ours, str(error))
        seconds = _gpu_seconds if self.topology == "gpu" else _tpu_seconds
        compute_s = seconds(compiled, ours, devices[0])
        return _with_memory(
            replace(
                ours, compute_s=compute_s, step_s=compute_s + ours.collective_s, serial_s=compute_s + ours.collective_s,
                overlapped_s=max(compute_s, ours.collective_s), simulation=None,
            ),
            compiled,
        )  # fmt: skip


def _tpu_seconds(compiled: jax.stages.Compiled, ours: Estimate, compiled_for: Any) -> float:
    """Seconds of compute, by the text of what was compiled."""
    text = compiled.as_text()
    if text is None:
        raise CallError(f"the compiler for {compiled_for.device_kind} shows no text to count cycles in")
    return compute_seconds(OptimisedHlo(text), compiled_for)


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


def _gpu_seconds(compiled: jax.stages.Compiled, ours: Estimate, compiled_for: Any) -> float:
    """Seconds of compute: rooflines of the compiled kernels, at the rates of the device that `ours` is for."""
    text = compiled.as_text()
    if text is None:
        raise CallError(f"the compiler for {compiled_for.device_kind} shows no text to find kernels in")
    return kernel_seconds(OptimisedHlo(text), device(ours.device))


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
    outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes
    peak = stats.argument_size_in_bytes + outputs + stats.temp_size_in_bytes
    return replace(
        ours, peak_bytes=float(peak), argument_bytes=float(stats.argument_size_in_bytes), output_bytes=float(outputs),
        fits=True, why="",
    )  # fmt: skip


def gpu_devices() -> list[Any]:
    """The GPUs of this machine; raises `CallError` where jax sees none."""
    try:
        return list(jax.devices("gpu"))
    except RuntimeError as error:
        hint = 'jax[cuda] on a machine with a GPU; or a TPU topology, which needs none: XlaCompile("v5e:2x4")'
        raise CallError("no GPU to compile for", why=str(error).splitlines()[0], hint=hint) from error


def topology_devices(topology: str, wait_s: float = 600.0) -> list[Any]:
    """The devices of a TPU topology that need not be there; waits for another process that uses libtpu.

    Raises `CallError` without libtpu, for a bad name, or if the wait was too short.
    """
    from jax.experimental import topologies

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    take_turn(wait_s)
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise CallError(
            f'no TPU topology "{topology}" to compile for',
            why=str(error).splitlines()[0],
            hint='pip install libtpu, and a name such as "v5e:2x4", "v4:2x2x4" or "v3:4x4"; one process at a time',
        ) from error


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
