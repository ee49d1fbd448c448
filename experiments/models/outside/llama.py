"""A Llama-like decoder in flax linen, trained with AdamW: RMSNorm, rotary positions, grouped queries, gated MLP, scan.

    x = x + attention(norm(x))     16 heads of queries share 4 of keys and values
    x = x + down(silu(gate(x)) * up(x))

The layers are one `nn.scan` over rematerialised blocks, so parameters have the layer as their first dim.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around


def rotated(x: jax.Array) -> jax.Array:
    """`x` [b, s, h, e] with each pair of features turned by an angle that grows with the position."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] / 10_000.0 ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)


class Block(nn.Module):
    heads: int
    shared: int
    hidden: int
    dtype: Any = None

    @nn.compact
    def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, None]:
        batch, length, width = x.shape
        head, groups = width // self.heads, self.heads // self.shared

        def dense(size: int, name: str) -> nn.Dense:
            return nn.Dense(size, use_bias=False, dtype=self.dtype, name=name)

        y = nn.RMSNorm(dtype=self.dtype)(x)
        q = rotated(dense(width, "query")(y).reshape(batch, length, self.heads, head))
        k = rotated(dense(self.shared * head, "key")(y).reshape(batch, length, self.shared, head))
        v = dense(self.shared * head, "value")(y).reshape(batch, length, self.shared, head)
        q = q.reshape(batch, length, self.shared, groups, head)
        scores = jnp.einsum("bskge,btke->bkgst", q, k) / jnp.sqrt(head)
        causal = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
        mixed = jnp.einsum("bkgst,btke->bskge", weights, v).reshape(batch, length, width)
        x = x + dense(width, "out")(mixed)
        y = nn.RMSNorm(dtype=self.dtype)(x)
        gated = jax.nn.silu(dense(self.hidden, "gate")(y)) * dense(self.hidden, "up")(y)
        return x + dense(width, "down")(gated), None


class Llama(nn.Module):
    layers: int
    width: int
    heads: int
    shared: int
    vocabulary: int
    dtype: Any = None
    """What is computed in; parameters are f32."""

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width, dtype=self.dtype, name="embedding")(tokens)
        blocks = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=self.layers,
        )(self.heads, self.shared, 8 * self.width // 3 // 64 * 64 or self.width, self.dtype, name="blocks")
        x, _ = blocks(x, None)
        head = nn.Dense(self.vocabulary, use_bias=False, dtype=self.dtype, name="head")
        return head(nn.RMSNorm(dtype=self.dtype)(x))


def training(
    layers: int = 4,
    width: int = 1024,
    heads: int = 16,
    shared: int = 4,
    vocabulary: int = 16_384,
    length: int = 512,
    batch: int = 64,
    dtype: Any = None,
) -> Training:
    model, tokens = Llama(layers, width, heads, shared, vocabulary, dtype), i32(batch, length)

    def loss(params, batch):
        return cross_entropy(model.apply(params, batch["tokens"]), batch["next"])

    columns = ("query", "key", "value", "gate", "up")
    return around(
        loss,
        optax.adamw(1e-3, eps=1e-5),
        lambda key: model.init(key, jnp.zeros((1, length), jnp.int32)),
        {"tokens": tokens, "next": tokens},
        {**{f"*{name}/kernel": 2 for name in columns}, "*blocks/out/kernel": 1, "*down/kernel": 1},
    )


SMALL = {"layers": 2, "width": 64, "heads": 4, "shared": 2, "vocabulary": 64, "length": 16, "batch": 8}
"""Sizes that eight host devices run in seconds."""
