"""Devices to compile for, be they there or not.

    topology_devices("v5e:2x4")             TPUs, by libtpu, which lets one process on a machine in at a time
    topology_devices("h100:1x4x8")          GPUs that are not there, by the GPU plugin: no driver, no CUDA, no flags
    topology_devices("h100", 32)            as many hosts as 32 need
    topology_devices("gpu")                 the GPUs of this machine

They are `jax.Device`s that run nothing: `jax.jit(...).lower(...)` with shardings on them compiles, and so does `ap.jit`
on a `jax.sharding.Mesh` of them.
"""

from __future__ import annotations

import functools
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

from autopart.base.errors import CallError
from autopart.costmodel.hardware.gpu_targets import gpu_topology, is_gpu_topology, target_config
from autopart.costmodel.xla.libtpu_turn import take_turn

GPU_EXTRA = "pip install autopart[gpu-compiler]"
GPU_WHEELS = ("jax-cuda12-pjrt", "jax-cuda13-pjrt")
"""XLA's GPU compiler as packages; either does."""


def topology_devices(topology: str, count: int = 8, wait_s: float = 600.0, memory: int = 0) -> list[Any]:
    """The devices of a topology, at least `count` where its name says no number.

    `wait_s`: how long to wait for another process that uses libtpu. `memory`: bytes of a GPU in place of its own.
    Raises `CallError` without the compiler, for a bad name, or if the wait was too short.
    """
    if topology == "gpu":
        return _gpus_here()
    if is_gpu_topology(topology):
        return _gpu_devices(*gpu_topology(topology, count), memory)
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


def _gpus_here() -> list[Any]:
    try:
        return list(jax.devices("gpu"))
    except RuntimeError as error:
        raise CallError(
            "no GPU to compile for", why=str(error).splitlines()[0],
            hint=f'a machine with a GPU; or XlaCompile("h100"), which needs none: {GPU_EXTRA}',
        ) from error  # fmt: skip


@functools.lru_cache(maxsize=16)
def _gpu_devices(name: str, topology: str, memory: int) -> list[Any]:
    """Devices of a topology of GPUs that are not there."""
    from jax.experimental import topologies

    check_gpu_compiler()
    config = target_config(name, memory)
    try:
        found = topologies.get_topology_desc(
            platform="cuda", topology_name=name, target_config=config, topology=topology
        )
    except (RuntimeError, ValueError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise CallError(f'XLA\'s GPU compiler has no topology "{name}:{topology}"', why=why, hint=GPU_EXTRA) from error
    return list(found.devices)


def check_gpu_compiler() -> None:
    """Raises `CallError` where XLA's GPU compiler is not installed, or is another version's than jaxlib."""
    there = {wheel: found for wheel in GPU_WHEELS if (found := _version(wheel))}
    if not there:
        raise CallError("XLA's GPU compiler is not installed", why=f"none of {', '.join(GPU_WHEELS)}", hint=GPU_EXTRA)
    wheel, found = next(iter(there.items()))
    wanted = version("jaxlib")
    if found.split(".")[:3] != wanted.split(".")[:3]:
        raise CallError(
            "XLA's GPU compiler is of another version than jaxlib", why=f"{wheel} {found}, jaxlib {wanted}",
            hint=f"pip install {wheel}=={wanted} {wheel.replace('pjrt', 'plugin')}=={wanted}",
        )  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
