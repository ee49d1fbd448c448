"""Layers in bf16 as users of flax write them: attention with one projection to all three or with three, gated MLPs."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

BF16 = jnp.bfloat16


def dense(size: int, name: str, bias: bool = True) -> nn.Dense:
    return nn.Dense(size, use_bias=bias, dtype=BF16, name=name)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = False, bias: Any = None) -> jax.Array:
    """Softmax attention over [batch, tokens, heads, features]; scores are rounded after the softmax, in f32."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(q.dtype), v)


class Fused(nn.Module):
    """One projection to queries, keys and values."""

    heads: int
    causal: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        b, s, width = x.shape
        q, k, v = jnp.split(dense(3 * width, "qkv")(x), 3, axis=-1)
        q, k, v = (y.reshape(b, s, self.heads, width // self.heads) for y in (q, k, v))
        return dense(width, "out")(attend(q, k, v, self.causal).reshape(b, s, width))


class Stacked(nn.Module):
    """One projection, reshaped to [3, heads, features] and turned, as timm's ViT does."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        b, s, width = x.shape
        qkv = dense(3 * width, "qkv")(x).reshape(b, s, 3, self.heads, width // self.heads).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv * jnp.array([[width // self.heads]], BF16) ** -0.25
        weights = nn.softmax(q @ k.swapaxes(-1, -2))
        return dense(width, "out")((weights @ v).transpose(0, 2, 1, 3).reshape(b, s, width))


class Separate(nn.Module):
    """Three projections; `keys` from another sequence."""

    heads: int
    causal: bool = False
    head: int = 0

    @nn.compact
    def __call__(self, x: jax.Array, keys: jax.Array | None = None, bias: Any = None) -> jax.Array:
        width = x.shape[-1]
        head = self.head or width // self.heads
        keys = x if keys is None else keys
        q, k, v = (
            dense(self.heads * head, name)(y).reshape(*y.shape[:2], self.heads, head)
            for name, y in (("query", x), ("key", keys), ("value", keys))
        )
        return dense(width, "out")(attend(q, k, v, self.causal, bias).reshape(*x.shape[:2], self.heads * head))


class Mlp(nn.Module):
    """Up, GELU, down."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return dense(x.shape[-1], "down")(nn.gelu(dense(self.hidden, "up")(x)))


class Gated(nn.Module):
    """SwiGLU."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        gated = nn.silu(dense(self.hidden, "gate", False)(x)) * dense(self.hidden, "up", False)(x)
        return dense(x.shape[-1], "down", False)(gated)


def norm() -> nn.LayerNorm:
    return nn.LayerNorm(dtype=BF16)


MEGATRON = {
    "*/qkv/kernel": 1, "*/query/kernel": 1, "*/key/kernel": 1, "*/value/kernel": 1, "*/out/kernel": 0,
    "*/gate/kernel": 1, "*/up/kernel": 1, "*/down/kernel": 0,
}  # fmt: skip
