"""Two products with something between them, and experts: by one-hot products, by sorting, in a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.whole_models.blocks.registered import Get, More, block, layer_norm, rms


@block
def mlp(get: Get, x: jax.Array, more: More) -> jax.Array:
    d = x.shape[-1]
    y = jax.nn.gelu(layer_norm(get, x) @ get("up", (d, 4 * d)) + get("up_b", (4 * d,)))
    return x + y @ get("down", (4 * d, d)) + get("down_b", (d,))


@block
def swiglu(get: Get, x: jax.Array, more: More) -> jax.Array:
    d = x.shape[-1]
    y = rms(get, x)
    return x + (jax.nn.silu(y @ get("gate", (d, 2 * d))) * (y @ get("up", (d, 2 * d)))) @ get("down", (2 * d, d))


@block
def one_hot_experts(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Tokens to experts by one-hot masks with a capacity (GShard)."""
    d, e = x.shape[-1], 4
    flat = x.reshape(-1, d)
    gates = jax.nn.softmax(flat @ get("router", (d, e)), -1)
    mask = jax.nn.one_hot(gates.argmax(-1), e, dtype=x.dtype)
    place = jnp.cumsum(mask, 0) * mask - 1
    capacity = max(len(flat) // 2, 1)
    slots = jax.nn.one_hot(jnp.where(place < capacity, place, -1).max(-1).astype(int), capacity, dtype=x.dtype)
    dispatch = jnp.einsum("ne,nc->nec", mask, slots)
    h = jax.nn.relu(jnp.einsum("nec,nd,edf->ecf", dispatch, flat, get("w1", (e, d, 2 * d))))
    out = jnp.einsum("ecf,efd->ecd", h, get("w2", (e, 2 * d, d)))
    return x + jnp.einsum("nec,ecd,n->nd", dispatch, out, gates.max(-1)).reshape(x.shape)


@block
def sorted_experts(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Tokens sorted by their expert, multiplied in groups, put back."""
    d, e = x.shape[-1], 4
    flat = x.reshape(-1, d)
    weights, chosen = lax.top_k(jax.nn.softmax(flat @ get("router", (d, e)), -1), 2)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    rows = jnp.take(flat, order // 2, axis=0)
    sizes = jnp.bincount(chosen.reshape(-1), length=e)
    h = jax.nn.silu(lax.ragged_dot(rows, get("w1", (e, d, 2 * d)), sizes))
    out = lax.ragged_dot(h, get("w2", (e, 2 * d, d)), sizes)
    back = jnp.zeros_like(out).at[order].set(out).reshape(len(flat), 2, d)
    return x + (back * weights[..., None]).sum(1).reshape(x.shape)


@block
def looped_experts(get: Get, x: jax.Array, more: More) -> jax.Array:
    """All experts on all tokens, by a scan over experts."""
    d, e = x.shape[-1], 3
    gates = jax.nn.softmax(x @ get("router", (d, e)), -1)

    def one(total: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        w, gate = given
        return total + jnp.tanh(x @ w) * gate[..., None], None

    return x + lax.scan(one, jnp.zeros_like(x), (get("w", (e, d, d)), jnp.moveaxis(gates, -1, 0)))[0]
