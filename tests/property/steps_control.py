"""Steps with control flow: loops, branches, and what transforms them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import autopart as ap
from tests.property.pool import Effect, step


def small(x):
    return lax.rem(x, jnp.full((), 16, x.dtype))


@step(Effect.SUMS)
def scan(pool):
    x = pool.draw(2)

    def body(carry, row):
        carry = small(carry + row)
        return carry, jnp.sum(carry) + row

    carry, rows = lax.scan(body, jnp.zeros(x.shape[1:], x.dtype), x, reverse=pool.coin(), unroll=pool.choose([1, 2]))
    return rows if pool.coin() else carry


@step(Effect.SUMS)
def nested_scan(pool):
    x = pool.draw(3, fits=lambda v: v.size <= 1024)

    def outer(carry, matrix):
        inner, _ = lax.scan(lambda c, row: (small(c + 2 * row), None), carry, matrix)
        return inner, small(inner - matrix[0] if matrix.shape[0] else inner)

    carry, rows = lax.scan(outer, jnp.ones(x.shape[2:], x.dtype), x)
    return rows if pool.coin() else carry


@step(Effect.COMPUTES, weight=2)
def scan_writes_rows(pool):
    """A loop that writes one row of a carried array each time, as a cache is filled."""
    x = pool.draw(2, fits=lambda v: 0 < v.shape[0] <= 12)
    made = ap.tag(pool.tag_name(), jnp.sort(x, axis=0))
    operation = pool.choose(["set", "add", "update"])

    def body(i, y):
        at = (i * 3 + 1) % (x.shape[0] + 1)
        if operation == "update":
            return lax.dynamic_update_index_in_dim(y, x[i], at, 0)
        return getattr(y.at[at], operation)(x[i])

    return lax.fori_loop(0, min(3, x.shape[0]), body, made)


@step(Effect.COMPUTES)
def loop(pool):
    x = pool.draw(1)
    weight = jnp.negative(x)
    return lax.fori_loop(0, 3, lambda i, y: small(y + weight * i), x)


@step(Effect.COMPUTES)
def loop_while(pool):
    """As many turns as the data say."""
    x = pool.draw(1, exact=True)
    turns = jnp.abs(jnp.sum(x).astype(jnp.int32)) % 4

    def body(state):
        i, y, z = state
        return i + 1, small(z + 1), small(y * 2)

    return lax.while_loop(lambda state: state[0] < turns, body, (0, x, jnp.flip(x, 0)))[pool.choose([1, 2])]


@step(Effect.COMPUTES)
def cond(pool):
    x, by = pool.draw(1), pool.draw(1, exact=True)
    return lax.cond(jnp.sum(by) > 0, lambda: x + 1, lambda: x * 2)


@step(Effect.COMPUTES, weight=3)
def cond_returns_operand(pool):
    """A branch that returns its operand, which others read too."""
    x, by = pool.draw(1), pool.draw(exact=True)
    other = pool.choose([lambda v: v + 3, lambda v: jnp.sort(v, axis=0), lambda v: v])
    branches = (lambda v: v, other) if pool.coin() else (other, lambda v: v)
    result = lax.cond(jnp.sum(by) > 1, *branches, x)
    return result + 2 * x if pool.coin() else result


@step(Effect.COMPUTES)
def cond_swaps(pool):
    x, by = pool.draw(1), pool.draw(exact=True)
    y = pool.like(x)
    first, second = lax.cond(jnp.max(by, initial=0) > 2, lambda a, b: (b, a), lambda a, b: (a, b), x, y)
    return pool.choose([first, second, first - second])


@step(Effect.COMPUTES)
def switch(pool):
    x, by = pool.draw(1), pool.draw(kinds="i")
    branches = [lambda v: v, jnp.negative, lambda v: jnp.flip(v, 0), lambda v: jnp.zeros_like(v)]
    return lax.switch(jnp.sum(by) % 5 - 1, branches, x)


@step(Effect.SUMS)
def cond_in_scan(pool):
    x = pool.draw(2, exact=True)

    def body(carry, row):
        carry = lax.cond(jnp.sum(row) > 0, lambda c, r: small(c + r), lambda c, r: c, carry, row)
        return carry, jnp.max(carry, initial=0)

    carry, each = lax.scan(body, jnp.zeros(x.shape[1:], x.dtype), x)
    return carry if pool.coin() else each


@step(Effect.SUMS)
def vmapped_while(pool):
    x = pool.draw(2, exact=True, fits=lambda v: v.shape[0] > 0 and v.size <= 512)

    def one(row):
        turns = jnp.abs(jnp.sum(row)).astype(jnp.int32) % 4
        return lax.while_loop(lambda s: s[0] < turns, lambda s: (s[0] + 1, small(s[1] * 2 + 1)), (0, row))[1]

    return jax.vmap(one)(x)


@step(Effect.SUMS)
def vmapped_cond(pool):
    x = pool.draw(2, exact=True)
    return jax.vmap(lambda row: lax.cond(jnp.sum(row) > 0, lambda r: r, lambda r: 2 * r, row))(x)


@step(Effect.COMPUTES)
def map_rows(pool):
    x = pool.draw(2)
    return lax.map(lambda row: row * 2 + row[::-1], x)


@step(Effect.SUMS)
def remat_gradient(pool):
    x = pool.draw(1, fits=lambda v: v.size > 0)

    @jax.checkpoint
    def block(v):
        return small(v * v) * v

    return jax.grad(lambda v: jnp.sum(block(small(v)) + v))(x)


@step(Effect.SUMS)
def scan_gradient(pool):
    x = pool.draw(2, fits=lambda v: 0 < v.shape[0] <= 4)
    weight = jnp.ones(x.shape[1:], x.dtype)
    kept = pool.choose([jax.checkpoint, lambda fun: fun])

    def loss(w):
        body = kept(lambda c, row: (c + w * small(row), None))
        return jnp.sum(lax.scan(body, jnp.zeros_like(w), x)[0] ** 2)

    return jax.grad(loss)(weight)


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, x), lambda kept, g: (g * jnp.sign(kept) + 1,))


@jax.custom_jvp
def tripled(x):
    return 3 * x


@tripled.defjvp
def _(primals, tangents):
    return tripled(primals[0]), 3 * tangents[0]


@step(Effect.SUMS)
def custom_gradient(pool):
    x = pool.draw(1, exact=True)
    fun = pool.choose([doubled, tripled])
    return jax.grad(lambda v: jnp.sum(small(v) * fun(v)))(x)


@step(Effect.COMPUTES)
def call(pool):
    """A jitted function, called twice, that calls another."""
    x = pool.draw(1)
    inner = jax.jit(lambda v: jnp.where(v > 100, v, v + 1))
    outer = jax.jit(lambda v: inner(v) - inner(2 * v))
    return outer(outer(x))
