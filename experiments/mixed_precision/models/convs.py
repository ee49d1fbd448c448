"""ConvNeXt, and a stem and two stages of ResNet-50."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.mixed_precision.models.layers import BF16, Mlp, dense, norm
from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class ConvNext(nn.Module):
    """The first two stages of ConvNeXt-T, a block each."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = norm()(nn.Conv(96, (4, 4), (4, 4), padding="VALID", dtype=BF16)(image))
        for stage in range(2):
            if stage:
                x = nn.Conv(192, (2, 2), (2, 2), padding="VALID", dtype=BF16)(norm()(x))
            width = x.shape[-1]
            y = norm()(nn.Conv(width, (7, 7), feature_group_count=width, dtype=BF16)(x))
            scale = self.param(f"scale_{stage}", nn.initializers.constant(1e-6), (width,)).astype(BF16)
            x = x + scale * Mlp(4 * width)(y)
        return dense(1000, "head")(norm()(x.mean(axis=(1, 2)))).astype(jnp.float32)


class Bottleneck(nn.Module):
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        def batch_norm() -> nn.BatchNorm:
            return nn.BatchNorm(use_running_average=not train, momentum=0.9, dtype=BF16)

        def conv(size: int, side: int, stride: int = 1) -> nn.Conv:
            return nn.Conv(size, (side, side), (stride, stride), use_bias=False, dtype=BF16)

        y = nn.relu(batch_norm()(conv(self.width, 1)(x)))
        y = nn.relu(batch_norm()(conv(self.width, 3, self.stride)(y)))
        y = batch_norm()(conv(4 * self.width, 1)(y))
        if y.shape != x.shape:
            x = batch_norm()(conv(4 * self.width, 1, self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """The stem and the first block of two stages."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False, dtype=BF16)(image)
        x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9, dtype=BF16)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        x = Bottleneck(64)(x)
        x = Bottleneck(128, 2)(x)
        return dense(1000, "head")(x.mean(axis=(1, 2))).astype(jnp.float32)


def convnext() -> Training:
    model = ConvNext()

    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(model.apply(params, batch["image"]), batch["label"])

    return around(
        loss,
        optax.adamw(1e-3),
        lambda key: model.init(key, jnp.zeros((1, 224, 224, 3))),
        {"image": f32(128, 224, 224, 3), "label": i32(128)},
        {"*up/kernel": 1, "*down/kernel": 0},
    )


def resnet() -> Training:
    model = ResNet()

    def loss(params: Any, batch: Any) -> jax.Array:
        logits, _ = model.apply(params, batch["image"], mutable=["batch_stats"])
        return cross_entropy(logits, batch["label"])

    return around(
        loss,
        optax.sgd(0.1, momentum=0.9),
        lambda key: model.init(key, jnp.zeros((1, 224, 224, 3))),
        {"image": f32(256, 224, 224, 3), "label": i32(256)},
        {"*Conv_0/kernel": 3, "*Conv_1/kernel": 2},
    )
