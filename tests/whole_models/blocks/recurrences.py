"""State carried along a sequence, and loops in loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.whole_models.blocks.registered import Get, More, block


@block
def state_space(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A diagonal linear recurrence by `associative_scan` (S5, Mamba)."""
    d = x.shape[-1]
    decay = jax.nn.sigmoid(x @ get("a", (d, d)))

    def joined(one: tuple, other: tuple) -> tuple:
        return one[0] * other[0], other[0] * one[1] + other[1]

    state = lax.associative_scan(joined, (decay, x * (1 - decay)), axis=1)[1]
    return x + state * jax.nn.silu(x @ get("g", (d, d)))


@block
def complex_states(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Complex diagonal states by a scan over places (S4D, LRU)."""
    d = x.shape[-1]
    decay, angle = get("log_decay", (d,)), get("angle", (d,))
    turn = jnp.exp(lax.complex(-jnp.exp(decay.astype(jnp.float32)), angle.astype(jnp.float32)))

    def step(state: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = turn * state + u * 1.5
        return state, (state * (0.5 - 2j)).real.astype(x.dtype)

    start = jnp.zeros((x.shape[0], d), jnp.complex64)
    return x + jnp.moveaxis(lax.scan(step, start, jnp.moveaxis(x, 1, 0))[1], 0, 1)


@block
def recurrent(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A gated recurrent unit, unrolled twice in its scan."""
    d = x.shape[-1]
    u, w = get("u", (d, 3 * d)), get("w", (d, 3 * d))

    def step(h: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        (za, ra, na), (zb, rb, nb) = jnp.split(v, 3, -1), jnp.split(h @ u, 3, -1)
        z = jax.nn.sigmoid(za + zb)
        h = z * h + (1 - z) * jnp.tanh(na + jax.nn.sigmoid(ra + rb) * nb)
        return h, h

    seen = jnp.moveaxis(x @ w, 1, 0)
    return x + jnp.moveaxis(lax.scan(step, jnp.zeros((x.shape[0], d), x.dtype), seen, unroll=2)[1], 0, 1)


@block
def long_chain(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Sixty small steps of an integrator, written one after the other."""
    w = get("w", (x.shape[-1],))
    for _ in range(60):
        x = x + 0.1 * jnp.sin(x * w)
    return x


@block
def nested_loops(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Loops in loops in loops."""
    w = get("w", (x.shape[-1],))

    def looped(depth: int, v: jax.Array) -> jax.Array:
        if not depth:
            return jnp.sin(v * w)
        return lax.scan(lambda c, _: (looped(depth - 1, c), None), v, None, length=1 + depth % 2)[0]

    return x + looped(6, x)


@block
def fixed_point(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A layer applied three times by `fori_loop`, started by a `cond`."""
    w = get("w", (x.shape[-1],) * 2)
    start = lax.cond(x.mean() > 0, lambda v: v, lambda v: -v, x)
    return x + lax.fori_loop(0, 3, lambda _, v: jnp.tanh(v @ w + x), start)
