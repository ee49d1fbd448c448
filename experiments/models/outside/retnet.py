"""Retentive network in flax linen, trained with Lion: decays between places instead of a softmax, norms, and a gate."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around

SMALL = {"layers": 1, "width": 16, "heads": 2, "vocabulary": 64, "batch": 8, "tokens": 8}


class Retention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        batch, tokens, width = x.shape
        q, k, v = (nn.Dense(width, use_bias=False)(x).reshape(batch, tokens, self.heads, -1) for _ in range(3))
        decay = jnp.log(1 - 2.0 ** (-5 - jnp.arange(self.heads)))
        apart = jnp.arange(tokens)[:, None] - jnp.arange(tokens)
        kept = jnp.where(apart >= 0, jnp.exp(decay[:, None, None] * apart), 0.0)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * kept * q.shape[-1] ** -0.5
        read = jnp.einsum("bhqk,bkhd->bqhd", scores, v)
        read = nn.LayerNorm(use_bias=False, use_scale=False)(read).reshape(batch, tokens, width)
        return nn.Dense(width, use_bias=False)(read * nn.silu(nn.Dense(width, use_bias=False)(x)))


class RetNet(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for _ in range(self.layers):
            x = x + Retention(self.heads)(nn.RMSNorm()(x))
            h = nn.RMSNorm()(x)
            h = nn.silu(nn.Dense(2 * self.width, use_bias=False)(h)) * nn.Dense(2 * self.width, use_bias=False)(h)
            x = x + nn.Dense(self.width, use_bias=False)(h)
        return nn.Dense(self.vocabulary, use_bias=False)(nn.RMSNorm()(x))


def training(
    layers: int = 3, width: int = 768, heads: int = 6, vocabulary: int = 16_384, batch: int = 32, tokens: int = 512
) -> Training:
    model = RetNet(layers, width, heads, vocabulary)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["tokens"]), batch["next"])

    return around(
        loss,
        optax.lion(1e-4),
        lambda key: model.init(key, jnp.zeros((1, tokens), jnp.int32))["params"],
        {"tokens": i32(batch, tokens), "next": i32(batch, tokens)},
    )
