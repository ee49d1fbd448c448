"""Steps that move elements by rules that depend on shapes alone."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tests.property.pool import Effect, NothingFits, step


@step(Effect.MOVES)
def broadcast(pool):
    x = pool.draw(kinds="fhi", fits=lambda v: v.size <= 256)
    return jnp.broadcast_to(x, (pool.choose([2, 4, 8]), *x.shape))


@step(Effect.MOVES)
def broadcast_ones(pool):
    x = pool.draw(kinds="fhi", fits=lambda v: 1 in v.shape and v.size <= 256)
    return jnp.broadcast_to(x, tuple(4 if n == 1 else n for n in x.shape))


@step(Effect.MOVES)
def transpose(pool):
    x = pool.draw(2, "fhi")
    return jnp.transpose(x, pool.rng.permutation(x.ndim))


@step(Effect.MOVES)
def merge_dims(pool):
    x = pool.draw(2, "fhi")
    at = int(pool.rng.integers(x.ndim - 1))
    return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])


@step(Effect.MOVES)
def split_dim(pool):
    x = pool.draw(1, "fhi")
    at = pool.axis(x)
    for first in pool.rng.permutation([2, 3, 4]):
        if x.shape[at] and x.shape[at] % first == 0:
            return x.reshape(*x.shape[:at], int(first), x.shape[at] // int(first), *x.shape[at + 1 :])
    return x[None]


@step(Effect.MOVES)
def regroup_dims(pool):
    """Two dims become two others of the same product, as (4, 6) -> (8, 3)."""
    x = pool.draw(2, "fhi")
    size = x.shape[-2] * x.shape[-1]
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    if not divisors:
        raise NothingFits
    first = pool.choose(divisors)
    return x.reshape(*x.shape[:-2], first, size // first)


@step(Effect.MOVES)
def slice_part(pool):
    x = pool.draw(1, "fhi")
    at = pool.axis(x)
    n = x.shape[at]
    start = int(pool.rng.integers(n // 2 + 1))
    return lax.slice_in_dim(x, start, pool.choose([n, n - n // 4]), int(pool.rng.integers(1, 3)), axis=at)


@step(Effect.MOVES)
def nothing_of_dim(pool):
    x = pool.draw(1, "fhi")
    return lax.slice_in_dim(x, 0, pool.choose([0, min(1, x.shape[0])]), axis=0)


@step(Effect.MOVES)
def concatenate(pool):
    x = pool.draw(1, "fhi")
    at = pool.axis(x)
    part = lax.slice_in_dim(x, 0, x.shape[at] // 2, axis=at)
    return jnp.concatenate(pool.choose([[x, pool.like(x)], [x, part], [part, x, part]]), axis=at)


@step(Effect.MOVES)
def stack(pool):
    x = pool.draw(0, "fhi", fits=lambda v: v.size <= 512)
    return jnp.stack([x, pool.like(x)], axis=int(pool.rng.integers(x.ndim + 1)))


@step(Effect.MOVES)
def pad(pool):
    x = pool.draw(1, "fhi")
    at = pool.axis(x)
    widths = [(0, 0, 0)] * x.ndim
    widths[at] = pool.choose([(1, 1, 0), (0, 2, 0), (0, x.shape[at], 0), (1, 0, 1), (-1, 1, 0), (-1, 2, 1)])
    if x.shape[at] < 2:
        widths[at] = (1, 0, 0)
    return lax.pad(x, jnp.array(pool.choose([0, 2]), x.dtype), widths)


@step(Effect.MOVES)
def reverse(pool):
    x = pool.draw(1, "fhi")
    return jnp.flip(x, pool.axis(x))


@step(Effect.MOVES)
def roll(pool):
    x = pool.draw(1, "fhi")
    return jnp.roll(x, int(pool.rng.integers(1, 4)), pool.axis(x))


@step(Effect.MOVES)
def repeat(pool):
    x = pool.draw(1, "fhi", fits=lambda v: v.size <= 512)
    at = pool.axis(x)
    return jnp.repeat(x, 2, axis=at) if pool.coin() else jnp.tile(x, [2 if d == at else 1 for d in range(x.ndim)])


@step(Effect.MOVES)
def expand(pool):
    x = pool.draw(0, "fhi")
    return jnp.expand_dims(x, int(pool.rng.integers(x.ndim + 1)))


@step(Effect.COMPUTES)
def iota(pool):
    x = pool.draw(1, "fhi", fits=lambda v: max(v.shape) <= 16)
    return x + lax.broadcasted_iota(x.dtype, x.shape, pool.axis(x))


@step(Effect.MOVES)
def triangle(pool):
    x = pool.draw(2, "fi")
    return pool.choose([jnp.tril, jnp.triu])(x)
