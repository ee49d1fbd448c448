"""GPT in equinox, trained with Adam: one sequence written, `vmap` over the batch, GELU by tanh, tied logits."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around


class Block(eqx.Module):
    attention_norm: eqx.nn.LayerNorm
    mlp_norm: eqx.nn.LayerNorm
    qkv: jax.Array
    out: jax.Array
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, width: int, heads: int, key: jax.Array):
        keys = jax.random.split(key, 4)
        self.attention_norm, self.mlp_norm = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.qkv = jax.random.normal(keys[0], (width, 3, heads, width // heads)) * 0.02
        self.out = jax.random.normal(keys[1], (heads, width // heads, width)) * 0.02
        self.up = eqx.nn.Linear(width, 4 * width, key=keys[2])
        self.down = eqx.nn.Linear(4 * width, width, key=keys[3])

    def __call__(self, x: jax.Array) -> jax.Array:
        q, k, v = jnp.einsum("sd,dthe->thse", jax.vmap(self.attention_norm)(x), self.qkv)
        scores = jnp.einsum("hse,hte->hst", q, k) / jnp.sqrt(q.shape[-1])
        causal = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
        x = x + jnp.einsum("hst,hte,hed->sd", weights, v, self.out)
        hidden = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.mlp_norm)(x)))
        return x + jax.vmap(self.down)(hidden)


class Gpt(eqx.Module):
    embedding: jax.Array
    positions: jax.Array
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    checkpoint: bool = eqx.field(static=True)
    """Whether `jax.checkpoint` is written around each block."""

    def __init__(
        self, layers: int, width: int, heads: int, vocabulary: int, length: int, key: jax.Array, checkpoint: bool = False
    ):
        first, second, *keys = jax.random.split(key, layers + 2)
        self.embedding = jax.random.normal(first, (vocabulary, width)) * 0.02
        self.positions = jax.random.normal(second, (length, width)) * 0.02
        self.blocks = [Block(width, heads, k) for k in keys]
        self.norm = eqx.nn.LayerNorm(width)
        self.checkpoint = checkpoint

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embedding[tokens] + self.positions
        for block in self.blocks:
            x = eqx.filter_checkpoint(block)(x) if self.checkpoint else block(x)
        return jax.vmap(self.norm)(x) @ self.embedding.T


def training(
    layers: int = 3,
    width: int = 1024,
    heads: int = 8,
    vocabulary: int = 16_384,
    length: int = 512,
    batch: int = 64,
    checkpoint: bool = False,
) -> Training:
    sizes = (layers, width, heads, vocabulary, length)
    static: Any = eqx.filter_eval_shape(Gpt, *sizes, jax.random.key(0), checkpoint)
    static = eqx.partition(static, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    def init(key):
        return eqx.filter(Gpt(*sizes, key, checkpoint), eqx.is_array)

    def loss(params, batch):
        logits = jax.vmap(eqx.combine(params, static))(batch["tokens"])
        return cross_entropy(logits, batch["next"])

    tokens = i32(batch, length)
    megatron = {"*qkv": 2, "*out": 0, "*up/weight": 0, "*up/bias": 0, "*down/weight": 1}
    return around(loss, optax.adam(1e-3), init, {"tokens": tokens, "next": tokens}, megatron)
