"""DeepLab in flax linen, trained with AdamW to segment images: dilated convolutions side by side, bilinear resizing."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"width": 16, "classes": 64, "batch": 8, "side": 16}


def _convolved(x: jax.Array, channels: int, window: int, stride: int = 1, dilation: int = 1) -> jax.Array:
    x = nn.Conv(channels, (window, window), strides=stride, kernel_dilation=dilation)(x)
    return nn.relu(nn.GroupNorm(8)(x))


class DeepLab(nn.Module):
    width: int
    classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = _convolved(image, self.width, 3, stride=2)
        x = _convolved(x, 2 * self.width, 3, stride=2)
        for dilation in (1, 2, 4):
            x = x + _convolved(x, 2 * self.width, 3, dilation=dilation)
        pyramid = [_convolved(x, self.width, 1)]
        for dilation in (3, 6, 9):
            pyramid.append(_convolved(x, self.width, 3, dilation=dilation))
        whole = nn.relu(nn.Conv(self.width, (1, 1))(x.mean((1, 2), keepdims=True)))
        pyramid.append(jnp.broadcast_to(whole, pyramid[0].shape))
        x = _convolved(jnp.concatenate(pyramid, -1), self.width, 1)
        x = nn.Conv(self.classes, (1, 1))(x)
        batch, height, across, _ = x.shape
        return jax.image.resize(x, (batch, 4 * height, 4 * across, self.classes), "bilinear")


def training(width: int = 64, classes: int = 21, batch: int = 64, side: int = 128) -> Training:
    return training_of(
        DeepLab(width, classes),
        (f32(batch, side, side, 3),),
        i32(batch, side, side),
        lambda logits, batch: cross_entropy(logits, batch[1]),
    )
