"""ResNet with batch norm in flax linen, trained with SGD and momentum: a step writes the running statistics."""

from __future__ import annotations

import flax.linen as nn
import jax
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"stages": ((8, 1, 2), (16, 2, 2)), "stem": 8, "batch": 8, "side": 16, "classes": 64}

STAGES = ((64, 1, 2), (128, 2, 2), (256, 2, 2), (512, 2, 1))
"""Channels, stride and blocks of each stage."""


def _convolved(x: jax.Array, channels: int, window: int, stride: int = 1) -> jax.Array:
    """A convolution and its batch norm in training."""
    x = nn.Conv(channels, (window, window), strides=stride, use_bias=False)(x)
    return nn.BatchNorm(use_running_average=False)(x)


def _bottleneck(x: jax.Array, channels: int, stride: int) -> jax.Array:
    y = nn.relu(_convolved(x, channels, 1))
    y = nn.relu(_convolved(y, channels, 3, stride))
    y = _convolved(y, 4 * channels, 1)
    if x.shape != y.shape:
        x = _convolved(x, 4 * channels, 1, stride)
    return nn.relu(x + y)


class ResNet(nn.Module):
    stages: tuple[tuple[int, int, int], ...]
    stem: int
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.relu(_convolved(image, self.stem, 7, 2))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for channels, stride, blocks in self.stages:
            for block in range(blocks):
                x = _bottleneck(x, channels, 1 if block else stride)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def training(
    stages: tuple[tuple[int, int, int], ...] = STAGES, stem: int = 64, batch: int = 256, side: int = 128,
    classes: int = 1000,
) -> Training:  # fmt: skip
    return training_of(
        ResNet(stages, stem, classes),
        (f32(batch, side, side, 3),),
        i32(batch),
        lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.sgd(0.1, momentum=0.9),
        statistics=("batch_stats",),
    )
