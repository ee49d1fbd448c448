"""Steps with random numbers of the program's own: threefry, keys from constants and from values."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tests.property.pool import Effect, Pool, step


def key(pool: Pool) -> jax.Array:
    made = jax.random.key(int(pool.rng.integers(100)))
    return jax.random.fold_in(made, jnp.sum(pool.draw(kinds="i"))) if pool.coin() else made


@step(Effect.ROUNDS)
def uniform(pool):
    x = pool.draw()
    return x + jax.random.uniform(key(pool), x.shape, x.dtype)


@step(Effect.COMPUTES)
def random_whole(pool):
    x = pool.draw(fits=lambda v: v.size <= 1024)
    return x + jax.random.randint(key(pool), x.shape, -4, 5).astype(x.dtype)


@step(Effect.MOVES)
def dropout(pool):
    x = pool.draw(kinds="fh")
    return jnp.where(jax.random.bernoulli(key(pool), 0.5, x.shape), x, 0)


@step(Effect.MOVES)
def shuffle(pool):
    x = pool.draw(1, fits=lambda v: v.size <= 512)
    return jax.random.permutation(key(pool), x, axis=0)


@step(Effect.MOVES)
def random_per_row(pool):
    x = pool.draw(2, fits=lambda v: 0 < v.shape[0] <= 12)
    keys = jax.random.split(key(pool), x.shape[0])
    return jax.vmap(lambda k, row: jnp.where(jax.random.bits(k, row.shape) % 2 == 0, row, 1))(keys, x)
