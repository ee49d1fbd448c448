"""ResNet in flax linen, trained with SGD and momentum: bottleneck blocks with group norm, strided stages."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class Bottleneck(nn.Module):
    channels: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.relu(nn.GroupNorm(32)(nn.Conv(self.channels, (1, 1), use_bias=False, name="widen")(x)))
        strides = (self.stride, self.stride)
        y = nn.Conv(self.channels, (3, 3), strides, use_bias=False, name="middle")(y)
        y = nn.Conv(4 * self.channels, (1, 1), use_bias=False, name="narrow")(nn.relu(nn.GroupNorm(32)(y)))
        if x.shape != y.shape:
            x = nn.Conv(4 * self.channels, (1, 1), strides, use_bias=False, name="skip")(x)
        return nn.relu(x + nn.GroupNorm(32)(y))


class ResNet(nn.Module):
    stages: tuple[int, ...]

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.relu(nn.GroupNorm(32)(nn.Conv(64, (7, 7), (2, 2), use_bias=False, name="stem")(image)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                x = Bottleneck(64 * 2**stage, 2 if stage and not block else 1)(x)
        return nn.Dense(1000, name="head")(x.mean(axis=(1, 2)))


def training(stages: tuple[int, ...] = (1, 1, 1, 1), batch: int = 512, side: int = 128) -> Training:
    model = ResNet(stages)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["image"]), batch["label"])

    return around(
        loss,
        optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9, nesterov=True)),
        lambda key: model.init(key, jnp.zeros((1, side, side, 3)))["params"],
        {"image": f32(batch, side, side, 3), "label": i32(batch)},
        {"*/widen/kernel": 3, "*/narrow/kernel": 2},
    )
