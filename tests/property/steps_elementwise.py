"""Steps that compute element by element, and those that change an element type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.property.pool import Effect, step


@step(Effect.COMPUTES)
def unary_whole(pool):
    x = pool.draw(kinds="fh")
    return pool.choose([jnp.abs, jnp.negative, jnp.square, lambda v: v + 1, lambda v: 3 * v])(x)


@step(Effect.COMPUTES)
def unary_jumping(pool):
    return pool.choose([jnp.sign, jnp.floor, jnp.round])(pool.draw(exact=True) * 0.5)


@step(Effect.ROUNDS)
def unary_rounded(pool):
    x = pool.draw()
    funs = [jnp.tanh, jnp.sin, jax.nn.sigmoid, lax.erf, lambda v: jnp.exp(-jnp.abs(v)), lambda v: lax.rsqrt(1 + v * v)]
    return pool.choose(funs)(x)


@step(Effect.COMPUTES)
def binary(pool):
    x = pool.draw(kinds="fh")
    return pool.choose([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum])(x, pool.like(x))


@step(Effect.ROUNDS)
def divide(pool):
    x = pool.draw()
    return x / (1 + jnp.abs(pool.like(x)))


@step(Effect.MOVES)
def compare_and_select(pool):
    x = pool.draw(exact=True, kinds="fhi")
    return jnp.where(x > pool.like(x, exact=True), x, 1)


@step(Effect.MOVES)
def clamp(pool):
    x = pool.draw(kinds="fhi")
    return lax.clamp(jnp.array(-3, x.dtype), x, pool.like(x)) if pool.coin() else jnp.clip(x, -3, 2)


@step(Effect.COMPUTES)
def complex_parts(pool):
    x = pool.draw()
    z = lax.complex(x, pool.like(x))
    return pool.choose([lambda: jnp.real(z * jnp.conj(z)), lambda: jnp.imag(z) + jnp.real(z)])()


@step(Effect.COMPUTES)
def integers(pool):
    x = pool.draw(kinds="i")
    return pool.choose([x + 3, x * x % 7, jnp.bitwise_and(x, 5), jnp.left_shift(x & 7, 2), lax.population_count(x)])


@step(Effect.COMPUTES)
def booleans(pool):
    x = pool.draw(exact=True, kinds="fi")
    mask = x > pool.like(x, exact=True)
    return pool.choose([mask, ~mask, mask & (x < 5)]).astype(pool.choose([jnp.int32, jnp.float32]))


@step(Effect.MOVES)
def to_int(pool):
    return pool.draw(exact=True).astype(jnp.int32)


@step(Effect.MOVES)
def to_float(pool):
    return jnp.clip(pool.draw(kinds="i"), -16, 16).astype(jnp.float32)


@step(Effect.MOVES)
def to_half(pool):
    x = pool.draw(exact=True, fits=lambda v: v.size <= 512)
    return jnp.clip(x, -8, 8).astype(pool.choose([jnp.bfloat16, jnp.float16]))


@step(Effect.MOVES)
def from_half(pool):
    return pool.draw(kinds="h").astype(jnp.float32)


@step(Effect.MOVES)
def reinterpret(pool):
    x = pool.draw()
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32), jnp.float32)


@step(Effect.COMPUTES)
def constant(pool):
    x = pool.draw(kinds="fh", fits=lambda v: v.size <= 512)
    return x + jnp.asarray(np.arange(x.size).reshape(x.shape) % 5, x.dtype)
