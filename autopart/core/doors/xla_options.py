"""Options of XLA's compiler that are wished for: asked for where this XLA has them, left out where it does not.

    QUICK_ON_CPU                       xla_cpu_use_fusion_emitters: XLA has it up to jaxlib 0.11.1
    known(QUICK_ON_CPU)                what `compile` takes of them
    for_devices(devices)               what programs on these devices are always compiled with

XLA refuses an option that it does not know. A function of nothing is compiled with each option, once in a process, to
find out; no list of versions is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

QUICK_ON_CPU: Mapping[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""Compiles a small module in half the time; what runs is slower."""

IN_ORDER_ON_CPU: Mapping[str, Any] = {"xla_cpu_enable_concurrency_optimized_scheduler": False}
"""Collectives start in the order of the schedule on every device. The scheduler that this turns off lets the threads of
two devices enter two collectives in different orders, each of which then waits for the other."""

WITHOUT_A_GPU: Mapping[str, Any] = {"xla_gpu_enable_triton_gemm": False}
"""For GPUs that are not there: nobody can time Triton's tiles, some of which do not compile. Products are then
cuBLAS's, as most of an H100's are."""

_REFUSALS = ("No such compile option", "While setting option")
"""How XLA begins what it says of an option."""


def is_refused(error: RuntimeError) -> bool:
    """Whether XLA says that it does not take an option."""
    return any(words in str(error) for words in _REFUSALS)


def for_devices(devices: Sequence[Any]) -> dict[str, Any]:
    """Options that a program on `devices` is compiled with."""
    first = devices[0]
    if first.platform == "cpu" and len(devices) > 1:
        return known(IN_ORDER_ON_CPU)
    compile_only = "CompileOnly" in type(first.client).__name__  # jax has no public word for it
    return dict(WITHOUT_A_GPU) if first.platform == "gpu" and compile_only else {}


def known(wished: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `wished`, options for the CPU, that this XLA knows."""
    return {name: value for name, value in wished.items() if _is_known(name, value)}


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    cpu = jax.devices("cpu")[0]
    with jax.set_mesh(jax.sharding.Mesh(np.array([cpu]), ("cpu",))):  # whatever mesh is set around the call
        on_cpu = jax.sharding.SingleDeviceSharding(cpu)
        lowered = jax.jit(lambda x: x, in_shardings=on_cpu).lower(jax.ShapeDtypeStruct((), np.bool_))
    try:
        lowered.compile({name: value})
    except jax.errors.JaxRuntimeError as error:
        if not is_refused(error):
            raise
        return False
    return True
