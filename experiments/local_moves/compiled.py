"""Cycles that the TPU compiler gives to the local copies of a step.

    program    step on an argument, then a small matmul of its result
    less       the same matmul of an argument

A collective has no cycles of its own in a compiled program, so what is left is its copies. The compiler names no cycles
for a `reshape` that puts pieces into whole tiles; it is counted as reading and writing its bytes once.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from autopart.api.reshard import device_local_plan
from autopart.costmodel import device
from autopart.costmodel.xla.optimised_hlo import estimated_cycles
from autopart.costmodel.xla.topologies import topology_devices
from autopart.costmodel.xla.xla_compile import CLOCK_HZ
from experiments.local_moves.cases import DEVICE, DTYPES, MESH, TOPOLOGY, Case

COLUMNS = 128
NUMPY = {"f32": jnp.float32, "bf16": jnp.bfloat16}
RESHAPE = re.compile(r"^  (?:ROOT )?%\S+ = \w+\[([\d,]*)\]\S* reshape\(", re.MULTILINE)


@cache
def mesh() -> jax.sharding.Mesh:
    devices = np.array(topology_devices(TOPOLOGY)).reshape(tuple(MESH.values()))
    return jax.sharding.Mesh(devices, tuple(MESH))


@cache
def clock_hz() -> float:
    return CLOCK_HZ[mesh().devices.flat[0].device_kind.lower()]


def measure(case: Case) -> dict[str, float]:
    """Cycles of the case's copies, of its reshapes, and bytes of temporary memory."""
    move = device_local_plan(case.plan, np.dtype(NUMPY[case.dtype]))
    source, target = case.plan.source.local_shape, case.plan.target.local_shape
    program = _compiled(lambda x: move(x)[0], source, target[-1], case.dtype)
    cycles = estimated_cycles(program.as_text()) - _matmul_cycles(target, case.dtype)
    bytes_per_cycle = device(DEVICE).hbm_bytes_per_s * device(DEVICE).hbm_efficiency / clock_hz()
    shapes = [[int(n) for n in dims.split(",") if n] for dims in RESHAPE.findall(program.as_text())]
    moved = sum(2 * math.prod(shape) * DTYPES[case.dtype] for shape in shapes)
    return {
        "copy_cycles": cycles,
        "reshape_cycles": moved / bytes_per_cycle,
        "temporary_bytes": program.memory_analysis().temp_size_in_bytes,
    }


@cache
def _matmul_cycles(shape: tuple[int, ...], dtype: str) -> float:
    return estimated_cycles(_compiled(lambda x: x, shape, shape[-1], dtype).as_text())


def _compiled(move: Any, shape: tuple[int, ...], contracted: int, dtype: str) -> Any:
    def run(x: jax.Array, w: jax.Array) -> jax.Array:
        precise = jax.lax.Precision.HIGHEST if dtype == "f32" else None
        return jnp.einsum("...k,kn->...n", move(x), w, precision=precise, preferred_element_type=jnp.bfloat16)

    split, whole = PartitionSpec(tuple(MESH)), PartitionSpec()
    program = jax.shard_map(run, mesh=mesh(), in_specs=(split, whole), out_specs=split, check_vma=False)
    shapes = ((shape[0] * math.prod(MESH.values()), *shape[1:]), (contracted, COLUMNS))
    arguments = [
        jax.ShapeDtypeStruct(s, NUMPY[dtype], sharding=NamedSharding(mesh(), spec))
        for s, spec in zip(shapes, (split, whole), strict=True)
    ]
    return jax.jit(program).lower(*arguments).compile()
