"""Steps that reduce, sort, accumulate and pool, with XLA's own reducers and with functions that call functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.property.pool import Effect, step


@jax.jit
def larger(a, b):
    return jnp.maximum(a, b)


@jax.jit
def total(a, b):
    return a + b


def larger_by_where(a, b):
    return jnp.where(a > b, a, b)


REDUCERS = {
    "max": (larger, -np.inf),
    "where": (larger_by_where, -np.inf),
    "add": (total, 0.0),
    "lax": (lax.min, np.inf),
}


@step(Effect.SUMS)
def reduce(pool):
    x = pool.draw(1, "fh")
    kept = pool.coin()
    fun = pool.choose([jnp.sum, lambda v, **k: jnp.max(v, initial=-4, **k), lambda v, **k: jnp.min(v, initial=4, **k)])
    return fun(x, axis=pool.choose([pool.axis(x), None]), keepdims=kept)


@step(Effect.SUMS)
def reduce_integers(pool):
    x = pool.draw(1, "i")
    return pool.choose([jnp.sum, jnp.prod, jnp.any, jnp.all])(x % 5, axis=pool.axis(x)).astype(jnp.int32)


@step(Effect.SUMS)
def product_of_signs(pool):
    x = pool.draw(1, exact=True)
    return jnp.prod(jnp.sign(x) * 2 - 1, axis=pool.axis(x)) if x.size <= 64 else jnp.prod(jnp.sign(x), axis=0)


@step(Effect.ROUNDS)
def statistics(pool):
    x = pool.draw(1, fits=lambda v: v.size > 0)
    return pool.choose([jnp.mean, jnp.var, jax.nn.logsumexp])(x, axis=pool.axis(x), keepdims=pool.coin())


@step(Effect.MOVES)
def position_of_largest(pool):
    x = pool.draw(1, exact=True, fits=lambda v: v.size > 0)
    return pool.choose([jnp.argmax, jnp.argmin])(x, axis=pool.axis(x)).astype(jnp.int32)


@step(Effect.SUMS)
def reduce_by_function(pool):
    """A reducer that calls another function."""
    x = pool.draw(1)
    fun, start = REDUCERS[pool.choose(sorted(REDUCERS))]
    at = pool.axis(x)
    result = lax.reduce(x, np.float32(start), fun, (at,))
    return jnp.clip(result, -64, 64) if np.isinf(start) else result


@step(Effect.MOVES)
def reduce_two_by_function(pool):
    """The largest value and where it stands, by one reducer of pairs."""
    x = pool.draw(1, exact=True, fits=lambda v: v.size > 0)
    at = pool.axis(x)

    def better(p, q):
        first = (p[0] > q[0]) | ((p[0] == q[0]) & (p[1] < q[1]))
        return jnp.where(first, p[0], q[0]), jnp.where(first, p[1], q[1])

    operands = x, lax.broadcasted_iota(jnp.int32, x.shape, at)
    return lax.reduce(operands, (np.float32(-np.inf), np.int32(99)), better, (at,))[int(pool.rng.integers(2))]


@step(Effect.MOVES)
def sort(pool):
    x = pool.draw(1, "fhi")
    return jnp.sort(x, axis=pool.axis(x), descending=pool.coin())


@step(Effect.MOVES)
def sort_by_keys(pool):
    x = pool.draw(1, exact=True)
    keys = pool.like(x, exact=True)
    at = pool.axis(x)
    operands = keys, x, lax.broadcasted_iota(jnp.int32, x.shape, at)
    return lax.sort(operands, dimension=at, num_keys=int(pool.rng.integers(1, 3)))[int(pool.rng.integers(3))]


@step(Effect.MOVES)
def order(pool):
    x = pool.draw(1, exact=True)
    return jnp.argsort(x, axis=pool.axis(x)).astype(jnp.int32)


@step(Effect.MOVES)
def top_k(pool):
    x = pool.draw(1, exact=True, fits=lambda v: v.shape[-1] >= 2)
    values, positions = lax.top_k(x, 2)
    return values if pool.coin() else positions


@step(Effect.SUMS)
def cumulative(pool):
    x = pool.draw(1)
    at = pool.axis(x)
    return pool.choose([lax.cumsum, lax.cummax, lax.cummin])(x, axis=at, reverse=pool.coin())


@step(Effect.SUMS)
def associative_scan(pool):
    x = pool.draw(1, fits=lambda v: v.size <= 512)
    return lax.associative_scan(pool.choose([total, larger, larger_by_where]), x, reverse=pool.coin(), axis=0)


@step(Effect.SUMS)
def window_by_function(pool):
    """A sliding window with a reducer that XLA has no name for."""
    x = pool.draw(2)
    fun, start = REDUCERS[pool.choose(sorted(REDUCERS))]
    window = (1,) * (x.ndim - 1) + (2,)
    strides = window if pool.coin() and x.shape[-1] % 2 == 0 else (1,) * x.ndim
    result = lax.reduce_window(x, np.float32(start), fun, window, strides, pool.choose(["VALID", "SAME"]))
    return jnp.clip(result, -64, 64) if np.isinf(start) else result


@step(Effect.MOVES)
def pooling(pool):
    x = pool.draw(2, fits=lambda v: v.shape[-1] % 2 == 0)
    window = (1,) * (x.ndim - 1) + (2,)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


@step(Effect.COMPUTES)
def pooling_gradient(pool):
    x = pool.draw(2, exact=True, fits=lambda v: v.shape[-1] % 2 == 0)
    window = (1,) * (x.ndim - 1) + (2,)
    return jax.grad(lambda v: jnp.sum(jnp.square(lax.reduce_window(v, -jnp.inf, lax.max, window, window, "VALID"))))(x)


@step(Effect.SUMS)
def segment_sum(pool):
    x = pool.draw(1, fits=lambda v: v.shape[0] > 0)
    segments = jnp.asarray(pool.rng.integers(0, 4, x.shape[:1]))
    return jax.ops.segment_sum(x, segments, num_segments=4)
