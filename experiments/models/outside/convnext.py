"""ConvNeXt in flax linen, trained with AdamW: windows of one feature, layer norm, layer scale."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        channels = x.shape[-1]
        y = nn.Conv(channels, (7, 7), feature_group_count=channels, name="window")(x)
        y = nn.Dense(4 * channels, name="up")(nn.LayerNorm()(y))
        scale = self.param("scale", nn.initializers.constant(1e-6), (channels,))
        return x + scale * nn.Dense(channels, name="down")(nn.gelu(y))


class ConvNeXt(nn.Module):
    channels: int
    stages: tuple[int, ...]

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.LayerNorm()(nn.Conv(self.channels, (4, 4), (4, 4), name="stem")(image))
        for stage, blocks in enumerate(self.stages):
            if stage:
                x = nn.Conv(2 * x.shape[-1], (2, 2), (2, 2), name=f"shrink_{stage}")(nn.LayerNorm()(x))
            for _ in range(blocks):
                x = Block()(x)
        return nn.Dense(1000, name="head")(nn.LayerNorm()(x.mean(axis=(1, 2))))


def training(channels: int = 96, stages: tuple[int, ...] = (1, 1, 2, 1), batch: int = 128, side: int = 128) -> Training:
    model = ConvNeXt(channels, stages)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["image"]), batch["label"])

    return around(
        loss,
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(4e-3, weight_decay=0.05)),
        lambda key: model.init(key, jnp.zeros((1, side, side, 3)))["params"],
        {"image": f32(batch, side, side, 3), "label": i32(batch)},
        {"*/up/kernel": 1, "*/up/bias": 0, "*/down/kernel": 0},
    )
