"""Conformer in flax linen, trained with Adam on a schedule: swish half-steps, attention, gated convolution."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class FeedForward(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        y = nn.swish(nn.Dense(4 * width, name="up")(nn.LayerNorm()(x)))
        return x + 0.5 * nn.Dense(width, name="down")(y)


class ConformerBlock(nn.Module):
    heads: int
    window: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        x = FeedForward()(x)
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, name="attention")(y, y)
        y = nn.glu(nn.Dense(2 * width, name="gate")(nn.LayerNorm()(x)))
        y = nn.Conv(width, (self.window,), feature_group_count=width, name="depthwise")(y)
        x = x + nn.Dense(width, name="point")(nn.swish(nn.LayerNorm()(y)))
        return nn.LayerNorm()(FeedForward()(x))


class Conformer(nn.Module):
    layers: int
    width: int
    heads: int
    labels: int

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        x = nn.Dense(self.width, name="subsample")(frames)
        for _ in range(self.layers):
            x = ConformerBlock(self.heads, 15)(x)
        return nn.Dense(self.labels, name="head")(x)


def training(layers: int = 1, width: int = 512, heads: int = 8, frames: int = 512, batch: int = 128) -> Training:
    model = Conformer(layers, width, heads, labels=1024)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["frames"]), batch["labels"])

    rate = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1000, 10_000)
    return around(
        loss,
        optax.adam(rate),
        lambda key: model.init(key, jnp.zeros((1, frames, 320)))["params"],
        {"frames": f32(batch, frames, 320), "labels": i32(batch, frames)},
        {
            "*/query/kernel": 1, "*/key/kernel": 1, "*/value/kernel": 1, "*/attention/out/kernel": 0,
            "*/up/kernel": 1, "*/down/kernel": 0,
        },
    )  # fmt: skip
