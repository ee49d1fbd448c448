"""Steps that are partitioned by hand: a `jax.shard_map` over one axis of the batch's mesh or over all, in the program.

x f32[8,6] on {a: 2, b: 4}      shard_map over b, x cut on dim 0: each device's part is shifted to the next one
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from tests.property.pool import Effect, NothingFits, Pool, step
from tests.property.steps_control import small


@step(Effect.SUMS, weight=3)
def by_hand(pool: Pool):
    """Local arithmetic and a collective along one axis; the other axes are left to the partitioner, or cut too."""
    if not pool.mesh:
        raise NothingFits
    axis, size = pool.choose(sorted(pool.mesh.items()))
    x = pool.draw(1, fits=lambda v: any(n and n % size == 0 for n in v.shape))
    dim = pool.choose([d for d, n in enumerate(x.shape) if n and n % size == 0])
    cut = P(*(axis if d == dim else None for d in range(x.ndim)))
    whole = P(*(None for _ in range(x.ndim)))
    bodies = {
        "own": (lambda v: small(v + lax.axis_index(axis).astype(v.dtype)), cut),
        "shift": (lambda v: lax.ppermute(v, axis, [(i, (i + 1) % size) for i in range(size)]) + v, cut),
        "sum": (lambda v: lax.psum(small(v), axis), whole),
        "most": (lambda v: lax.pmax(v, axis), whole),
        "gather": (lambda v: lax.all_gather(v * 2, axis, axis=dim, tiled=True), whole),
    }
    if x.shape[dim] % (size * size) == 0:
        bodies["scatter"] = (lambda v: lax.psum_scatter(small(v), axis, scatter_dimension=dim, tiled=True), cut)
    others = [d for d, n in enumerate(x.shape) if d != dim and n and n % size == 0]
    if others:
        other = pool.choose(others)
        exchanged = P(*(axis if d == other else None for d in range(x.ndim)))
        bodies["exchange"] = (lambda v: lax.all_to_all(v, axis, other, dim, tiled=True), exchanged)
    body, left = bodies[pool.choose(sorted(bodies))]
    names = {axis} if pool.coin() else set(pool.mesh)
    region = jax.jit(  # without it jax runs no region over some of the axes op by op
        jax.shard_map(
            body, mesh=_devices(pool.mesh), in_specs=(cut,), out_specs=left, axis_names=names, check_vma=False
        )
    )
    return region(x) if pool.coin() else jnp.negative(region(jnp.negative(x)))


def _devices(mesh) -> jax.sharding.Mesh:
    devices = jax.devices()[: math.prod(mesh.values())]
    return jax.make_mesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh), devices=devices)
