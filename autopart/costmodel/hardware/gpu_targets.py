"""GPUs as XLA's compiler takes them where none is there: one message of numbers per device.

    target_config("h100")                  gpu_device_info { core_count: 132 memory_bandwidth: 3352320000000 ... }
    target_config("h100", memory=1e12)     one with so much memory that the compiler rematerialises nothing
    gpu_topology("h100:1x4x8", 32)         ("h100", "1x4x8"): slices, hosts of a slice, GPUs of a host
    gpu_topology("h100", 32)               the same: hosts of 8 until there are 32

The text is XLA's `GpuTargetConfigProto` (`xla/stream_executor/device_description.proto`), of which it has examples in
`xla/tools/hlo_opt/gpu_specs`; the numbers are NVIDIA's, of the papers on its architectures.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from autopart.base.errors import CallError

AMPLE_BYTES = 10**12
"""Memory in which XLA has no reason to compute anything again."""

_TOPOLOGY = re.compile(r"(\w+)(?::(\d+)x(\d+)x(\d+))?")


class GpuTarget(NamedTuple):
    """What XLA asks of a GPU.

    capability            major compute capability; from Hopper on with the features of that architecture alone
    cores, lanes          streaming multiprocessors, and f32 lanes of each
    clock_ghz             boost clock
    hbm_bytes, hbm_bytes_per_s, l2_bytes   memory as a driver shows it, its rate, the cache
    shared_bytes          shared memory of a multiprocessor; a block may have 1 KiB less
    matrix                clock of the matrix units, and multiply-adds a clock of each of four: 8, 16, 32, 64 bits
    gpus                  of a host
    """

    title: str
    capability: int
    cores: int
    lanes: int
    clock_ghz: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    l2_bytes: int
    shared_bytes: int = 233472
    matrix: tuple[float, int, int, int, int] | None = None
    gpus: int = 8


_HOPPER = (1.8295201, 1024, 512, 256, 32)

GPU_TARGETS = {
    "a100_40gb": GpuTarget("NVIDIA A100-SXM4-40GB", 8, 108, 64, 1.41, 42331013120, 1555.2e9, 40 << 20, 167936),
    "a100_80gb": GpuTarget("NVIDIA A100-SXM4-80GB", 8, 108, 64, 1.41, 85100068864, 2039.04e9, 40 << 20, 167936),
    "h100": GpuTarget("NVIDIA H100 80GB HBM3", 9, 132, 128, 1.98, 84942979072, 3352.32e9, 50 << 20, matrix=_HOPPER),
    "h200": GpuTarget("NVIDIA H200 141GB HBM3e", 9, 132, 128, 1.98, 151397597184, 4800e9, 50 << 20, matrix=_HOPPER),
    "b200": GpuTarget(
        "NVIDIA B200", 10, 148, 128, 1.965, 191514411008, 7672.32e9, 132644864,
        matrix=(1.8353101, 2048, 1024, 512, 16),
    ),
    "gb200": GpuTarget(
        "NVIDIA GB200", 10, 152, 128, 2.062, 197897748480, 7928.064e9, 135528448,
        matrix=(1.9259081, 2048, 1024, 512, 16), gpus=4,
    ),
}  # fmt: skip
"""By name of the device in `DEVICES`."""

_TYPES = ((2, 6, 19, 20, 23, 24, 25, 28, 29, 33), (10, 16), (11,), (12,))
"""Codes of element types (`xla.PrimitiveType`) of 8, 16, 32 and 64 bits."""

_TEXT = """gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin} threads_per_core_limit: 2048
  core_count: {cores} fpus_per_core: {lanes} clock_rate_ghz: {clock}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {rate} l2_cache_size: {l2} device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} feature_extension: {extension} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 {matrix}
  device_vendor: "NVIDIA Corporation" device_address_bits: 64 ecc_enabled: true name: "{title}"
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{title}"
"""


def target_config(name: str, memory: int = 0) -> str:
    """The message for a device of `GPU_TARGETS`, with `memory` bytes in place of its own if any are given."""
    of, matrix = GPU_TARGETS[name], ""
    if of.matrix is not None:
        clock_ghz, *rates = of.matrix
        rows = [(code, rate) for codes, rate in zip(_TYPES, rates, strict=True) for code in codes]
        infos = [
            f"rate_infos {{ key: {code} value {{ clock_rate_ghz: {of.clock_ghz if code == 12 else clock_ghz}"
            f" units_per_core: 4 ops_per_clock: {rate} }} }}"
            for code, rate in rows
        ]
        matrix = f"matrix_unit_description {{ {' '.join(infos)} }}"
    return _TEXT.format(
        shared=of.shared_bytes, optin=of.shared_bytes - 1024, cores=of.cores, lanes=of.lanes, clock=of.clock_ghz,
        rate=int(of.hbm_bytes_per_s), l2=of.l2_bytes, memory=memory or of.hbm_bytes, major=of.capability,
        extension="ACCELERATED_FEATURES" if of.matrix else "NONE", matrix=matrix, title=of.title,
    )  # fmt: skip


def is_gpu_topology(topology: str) -> bool:
    """True for the name of a device of `GPU_TARGETS`, alone or with slices, hosts and GPUs behind it."""
    return topology.partition(":")[0] in GPU_TARGETS


def gpu_topology(topology: str, devices: int) -> tuple[str, str]:
    """(device, "slices x hosts x GPUs" as XLA writes it) for so many devices; raises `CallError` for a bad name."""
    found = _TOPOLOGY.fullmatch(topology)
    if found is None or found[1] not in GPU_TARGETS:
        raise CallError(f'no GPU topology is called "{topology}"', hint=f'"h100:1x4x8", or {", ".join(GPU_TARGETS)}')
    if found[2]:
        return found[1], "x".join(found.groups()[1:])
    each = max(n for n in range(1, GPU_TARGETS[found[1]].gpus + 1) if devices % n == 0)
    return found[1], f"1x{devices // each}x{each}"
