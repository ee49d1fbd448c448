"""Steps that read neighbours along a dim: shifts, windows and their gradients, batches in microbatches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.property.pool import Effect, step
from tests.property.steps_control import small


@step(Effect.COMPUTES, weight=2)
def difference(pool):
    """Of elements and those one or two behind; filled up again, or one less."""
    x = pool.draw(1, fits=lambda v: max(v.shape) >= 8)
    at, by = int(np.argmax(x.shape)), pool.choose([1, 1, 2])
    size = x.shape[at]
    ahead, behind = (lax.slice_in_dim(x, *ends, axis=at) for ends in ((by, size), (0, size - by)))
    found = ahead - 2 * behind
    if pool.coin():
        return found
    fill = lax.slice_in_dim(x, 0, by, axis=at) if pool.coin() else jnp.ones_like(lax.slice_in_dim(x, 0, by, axis=at))
    return jnp.concatenate([fill, found] if pool.coin() else [found, fill], axis=at)


@step(Effect.SUMS)
def sum_without_ends(pool):
    """What is cut off is no number, and reaches no sum, product or maximum."""
    x = pool.draw(2, exact=True, fits=lambda v: max(v.shape) >= 8)
    at = int(np.argmax(x.shape))
    last = lax.broadcasted_iota(jnp.int32, x.shape, at) == x.shape[at] - 1
    kept = lax.slice_in_dim(jnp.where(last, jnp.nan, x), 0, x.shape[at] - 1, axis=at)
    kept = small(kept) if pool.coin() else kept * 2
    rows = jnp.moveaxis(kept, at, 0).reshape(x.shape[at] - 1, -1)
    return pool.choose([lambda v: v.sum(0), lambda v: v.max(0), lambda v: v.T @ v, lambda v: jnp.sum(v)])(rows)


@step(Effect.SUMS)
def gradient_of_shifts(pool):
    x = pool.draw(1, exact=True, fits=lambda v: max(v.shape) >= 8)
    at = int(np.argmax(x.shape))
    size, weight = x.shape[at], lax.broadcasted_iota(x.dtype, x.shape, at)

    def total(x):
        shifted = lax.slice_in_dim(x, 1, size, axis=at) * lax.slice_in_dim(weight, 0, size - 1, axis=at)
        return jnp.sum(shifted) + jnp.sum(jnp.roll(x, 1, at) * weight)

    return jax.grad(total)(x)


@step(Effect.SUMS, weight=2)
def gradient_of_a_pool(pool):
    """Windows that overlap, with padding on either side."""
    x = pool.draw(2, exact=True, fits=lambda v: v.shape[1] >= 4 and v.size <= 1024)
    stride = pool.choose([n for n in (1, 2) if x.shape[1] % n == 0])
    size = stride + pool.choose([0, 1, 2])
    low = int(pool.rng.integers(size))
    high = max(0, size - stride - low)
    largest = pool.coin()
    start, by = (-np.inf, lax.max) if largest else (np.inf, lax.min)
    rest = (1,) * (x.ndim - 2)
    padding = [(0, 0), (min(low, size - 1), high), *[(0, 0)] * (x.ndim - 2)]

    def total(x):
        found = lax.reduce_window(x, start, by, (1, size, *rest), (1, stride, *rest), padding)
        return jnp.sum(found * lax.broadcasted_iota(x.dtype, found.shape, 1))

    return jax.grad(total)(x)


@step(Effect.SUMS)
def accumulate(pool):
    """Rows in microbatches, what they give added up by a loop."""
    x = pool.draw(2, exact=True, fits=lambda v: v.shape[0] in (4, 8, 12))
    steps = pool.choose([2, 4])
    rows = x.reshape(steps, -1, *x.shape[1:])
    add = lambda total, row: (total + row.sum(0), small(row).max(0))  # noqa: E731
    total, largest = lax.scan(add, jnp.zeros(x.shape[1:], x.dtype), rows)
    return total if pool.coin() else largest


@step(Effect.SUMS, weight=2)
def stencil_with_borders(pool):
    """Of an array with ghost cells on one or two dims, padded in any mode; or its gradient."""
    x = pool.draw(2, exact=True, fits=lambda v: min(v.shape) >= 4 and max(v.shape) >= 8)
    mode, by = pool.choose(["wrap", "edge", "reflect", "symmetric", "constant"]), pool.choose([1, 1, 2])
    at = int(np.argmax(x.shape))
    both = pool.coin()

    def stencil(x):
        wide = [(by, by) if both or d == at else (0, 0) for d in range(x.ndim)]
        p, found = jnp.pad(x, wide, mode=mode), jnp.zeros_like(x)
        for first in (0, by, 2 * by):
            starts = [first if both or d == at else 0 for d in range(x.ndim)]
            found = found + (first + 1) * lax.slice(p, starts, [a + n for a, n in zip(starts, x.shape, strict=True)])
        return found

    return jax.grad(lambda x: jnp.sum(stencil(x) * x))(x) if pool.coin() else stencil(x)


@step(Effect.SUMS)
def rows_of_steps(pool):
    """Sums over the rows of a few steps, one step after the other."""
    x = pool.draw(1, exact=True, fits=lambda v: v.shape[0] >= 8 and any(v.shape[0] % n == 0 for n in (2, 3, 4, 6)))
    steps = pool.choose([n for n in (2, 3, 4, 6) if x.shape[0] % n == 0])
    rows = small(x).reshape(steps, x.shape[0] // steps, *x.shape[1:])
    return lax.scan(lambda total, row: (total + jnp.sum(row, 0), None), jnp.zeros_like(rows[0, 0]), rows)[0]
