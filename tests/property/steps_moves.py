"""Steps of which an expert moves little: shuffles, all pairs, bags behind masks, stacks by rows, grams, resizing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autopart as ap
from tests.property.pool import LARGEST, Effect, NothingFits, step


@step(Effect.MOVES, weight=2)
def shuffled_rows(pool):
    """Rows in an order that is known beforehand, computed, or drawn with repetitions."""
    x = pool.draw(1, "fhi", fits=lambda v: v.shape[0] > 0)
    order = pool.rng.permutation(x.shape[0]) if pool.coin() else pool.rng.integers(0, x.shape[0], 2 * x.shape[0])
    order = jnp.asarray(order, jnp.int32) + (lax.optimization_barrier(jnp.int32(0)) if pool.coin() else 0)
    return ap.tag(pool.tag_name(), x[order]) if pool.coin() else jnp.take(x, order, axis=0, mode="clip")


@step(Effect.MOVES)
def along_known_rows(pool):
    """As rows, of which each column takes those that it is told; all are told the same."""
    x = pool.draw(2, "fi", fits=lambda v: v.size > 0)
    at = int(pool.rng.integers(x.ndim))
    order = pool.rng.permutation(x.shape[at]).reshape([-1 if d == at else 1 for d in range(x.ndim)])
    return jnp.take_along_axis(x, jnp.broadcast_to(jnp.asarray(order, jnp.int32), x.shape), at)


@step(Effect.ROUNDS)
def transformed(pool):
    """A Fourier transform of all dims, and back; not beside parts by hand: XLA's partitioner ends Python over it."""
    if pool.mesh:
        raise NothingFits
    x = pool.draw(2, "f", fits=lambda v: 0 < v.size <= LARGEST // 64 and v.ndim <= 3)
    there = jnp.fft.rfftn(x.astype(jnp.float32))
    return jnp.fft.irfftn(there * 2, s=x.shape) if pool.coin() else jnp.abs(there) ** 2


@step(Effect.COMPUTES, weight=2)
def all_pairs(pool):
    x = pool.draw(1, fits=lambda v: v.size * v.shape[0] <= LARGEST)
    y = pool.choose([x, x + 1, jnp.flip(x, 0)])
    pairs = x[:, None] - y[None] if pool.coin() else jnp.maximum(y[None], x[:, None])
    return pairs.max(1) if pool.coin() else pairs


@step(Effect.SUMS, weight=2)
def bags(pool):
    """Sums over rows that were looked up, some of them nowhere."""
    x = pool.draw(1, "f", fits=lambda v: v.shape[0] > 0)
    rows = jnp.asarray(pool.rng.integers(0, x.shape[0], (pool.choose([2, 4, 8]), 2)), jnp.int32)
    rows = ap.tag(pool.tag_name(), rows) if pool.coin() else rows
    found = jnp.take(x, rows, axis=0)
    kept = (rows % 2 == 0).reshape(rows.shape + (1,) * (x.ndim - 1))
    return (jnp.where(kept, found, 0) if pool.coin() else found).sum(1)


@step(Effect.SUMS)
def matrices_by_themselves(pool):
    x = pool.draw(3, fits=lambda v: v.ndim == 3)
    gram = jnp.einsum("bik,bjk->bij", x, x)
    return gram if pool.coin() else jnp.einsum("bki,bkj->bij", x, x)


@step(Effect.COMPUTES)
def stack_by_rows(pool):
    """A scan that reads a stack and gives it back, all of each row or a part of it."""
    x = pool.draw(2, "fi", fits=lambda v: v.size > 0)
    part = pool.coin()

    def turn(carried, row):
        row = row.at[0].set(carried) if part else row + carried
        return carried + 1, row

    return lax.scan(turn, jnp.zeros(x.shape[2:], x.dtype), x)[1]


@step(Effect.ROUNDS)
def resized(pool):
    x = pool.draw(2, "f", fits=lambda v: 0 < v.size <= LARGEST // 64 and v.ndim == 2)
    long = jnp.tile(x, (-(-256 // x.shape[0]), 1))[:256]
    return jax.image.resize(long, (pool.choose([128, 512, 384]), x.shape[1]), pool.choose(["linear", "cubic"]))[:8]


@step(Effect.MOVES)
def ordered(pool):
    x = pool.draw(2, "fi", fits=lambda v: v.size > 0)
    return jnp.sort(x, axis=int(pool.rng.integers(x.ndim))) * np.ones((), x.dtype)
