"""Runs a plan's StableHLO on simulated devices, from parts that pending reductions still have to join."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from autopart.api.reshard import device_local_plan
from autopart.spmd.redistribution import DistributedType, Plan


def mesh_of(kind: DistributedType) -> Mesh:
    """The type's mesh over the first devices."""
    names, sizes = zip(*kind.mesh, strict=True)
    return Mesh(np.array(jax.devices()[: math.prod(sizes)]).reshape(sizes), names)


def spec_of(kind: DistributedType) -> PartitionSpec:
    """The type as a PartitionSpec; its axes must be whole."""
    return PartitionSpec(*(tuple(a.name for a in reversed(dim)) or None for dim in kind.axes))


def device_local(steps: Plan, dtype: np.dtype) -> Callable[[jax.Array], jax.Array]:
    """The plan on whole arrays, with a leading dim per pending reduction, in the order of the source's type."""
    local = device_local_plan(steps, dtype)
    pending = [axis.name for axis, _ in steps.source.pending]
    squeezed = tuple(range(len(pending)))
    return jax.shard_map(
        lambda x: local(x.squeeze(squeezed))[0],
        mesh=mesh_of(steps.source),
        in_specs=PartitionSpec(*pending, *spec_of(steps.source)),
        out_specs=spec_of(steps.target),
        check_vma=False,
    )


def redistributed(steps: Plan, parts: np.ndarray) -> jax.Array:
    """The array after the plan, from the parts that pending reductions join."""
    return jax.jit(device_local(steps, parts.dtype))(parts)
