"""Attention, as it is written for sequences, windows, groups of heads and chunks."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tests.whole_models.blocks.registered import Get, More, block, layer_norm, rms


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def softmax_of(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None) -> jax.Array:
    """[b, t, h, e] of each: attention over t."""
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / max(q.shape[-1], 1) ** 0.5
    scores = scores if mask is None else jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores, -1), v)


def causal(length: int) -> jax.Array:
    return jnp.tril(jnp.ones((length, length), bool))


@block
def attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Heads by one product for q, k and v."""
    d, h = x.shape[-1], len(more.heads)
    q, k, v = jnp.split(layer_norm(get, x) @ get("qkv", (d, 3 * d)), 3, -1)
    out = softmax_of(split_heads(q, h), split_heads(k, h), split_heads(v, h), causal(x.shape[1]))
    return x + out.reshape(x.shape) @ get("out", (d, d))


@block
def grouped_queries(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Fewer keys than queries, rotary positions."""
    d, h = x.shape[-1], len(more.heads)
    groups, e = max(h // 2, 1), d // h
    y = rms(get, x)
    q = split_heads(y @ get("q", (d, h * e)), h)
    k, v = (split_heads(y @ get(n, (d, groups * e)), groups) for n in "kv")
    q, k = rotary(q), rotary(k)
    k, v = (jnp.repeat(z, h // groups, 2) for z in (k, v))
    return x + softmax_of(q, k, v, causal(x.shape[1])).reshape(*x.shape[:2], h * e) @ get("o", (h * e, d))


def rotary(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    if not half:
        return x
    angle = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    sin, cos = (f(angle)[None, :, None].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


@block
def window_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Each place sees a band of places; relative positions are looked up."""
    d, t, h = x.shape[-1], x.shape[1], len(more.heads)
    q, k, v = (split_heads(x @ get(n, (d, d)), h) for n in ("wq", "wk", "wv"))
    far = jnp.arange(t)[:, None] - jnp.arange(t)[None]
    bias = get("bias", (7, h))[jnp.clip(far + 3, 0, 6)].transpose(2, 0, 1)
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) + bias
    weights = jax.nn.softmax(jnp.where(jnp.abs(far) <= 3, scores, -1e9), -1)
    return x + jnp.einsum("bhqk,bkhe->bqhe", weights, v).reshape(x.shape) @ get("wo", (d, d))


@block
def blocked_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Blocks of places see the block before them: padded, reshaped, joined with its neighbour."""
    b, t, d = x.shape
    size = max(t // 4, 1)
    blocks = -(-t // size)
    y = jnp.pad(x @ get("w", (d, d)), ((0, 0), (0, blocks * size - t), (0, 0))).reshape(b, blocks, size, d)
    before = jnp.concatenate([jnp.zeros_like(y[:, :1]), y[:, :-1]], 1)
    seen = jnp.concatenate([before, y], 2)
    weights = jax.nn.softmax(jnp.einsum("bnqd,bnkd->bnqk", y, seen), -1)
    return x + jnp.einsum("bnqk,bnkd->bnqd", weights, seen).reshape(b, blocks * size, d)[:, :t]


@block
def linear_attention(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Sums of outer products of keys and values, by cumsum."""
    d, h = x.shape[-1], len(more.heads)
    q, k, v = (split_heads(x @ get(n, (d, d)), h) for n in ("q", "k", "v"))
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    state = jnp.cumsum(jnp.einsum("bthe,bthf->bthef", k, v), 1)
    norm = jnp.einsum("bthe,bthe->bth", q, jnp.cumsum(k, 1))
    return x + (jnp.einsum("bthe,bthef->bthf", q, state) / (norm[..., None] + 1e-6)).reshape(x.shape)


@block
def cross_chunks(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A few learned queries read all places, and all places read them (Perceiver)."""
    d = x.shape[-1]
    latents = get("latents", (3, d))
    read = jax.nn.softmax(jnp.einsum("ld,btd->blt", latents, x), -1) @ x
    back = jax.nn.softmax(jnp.einsum("btd,bld->btl", x, read), -1) @ read
    return x + back @ get("w", (d, d))
