"""Wide ResNet in flax linen, trained with SGD and Nesterov's momentum: batch norm before each convolution."""

from __future__ import annotations

import flax.linen as nn
import jax
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"widths": (32, 64), "blocks": 2, "classes": 64, "batch": 8, "side": 8}


def _activated(x: jax.Array) -> jax.Array:
    return nn.relu(nn.BatchNorm(use_running_average=False)(x))


def _block(x: jax.Array, width: int, stride: int) -> jax.Array:
    strides = (stride, stride)
    y = _activated(x)
    if x.shape[-1] != width:
        x = nn.Conv(width, (1, 1), strides, use_bias=False)(y)
    y = nn.Conv(width, (3, 3), strides, use_bias=False)(y)
    return x + nn.Conv(width, (3, 3), use_bias=False)(_activated(y))


class WideResNet(nn.Module):
    widths: tuple[int, ...]
    blocks: int
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(16, (3, 3), use_bias=False)(image)
        for stage, width in enumerate(self.widths):
            for block in range(self.blocks):
                x = _block(x, width, 2 if stage and not block else 1)
        return nn.Dense(self.classes)(_activated(x).mean((1, 2)))


def training(
    widths: tuple[int, ...] = (128, 256, 512), blocks: int = 2, classes: int = 100, batch: int = 256, side: int = 32
) -> Training:
    return training_of(
        WideResNet(widths, blocks, classes),
        (f32(batch, side, side, 3),),
        i32(batch),
        lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.sgd(0.1, momentum=0.9, nesterov=True),
        statistics=("batch_stats",),
    )
