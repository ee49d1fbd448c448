"""Swin transformer in flax linen, trained with AdamW: attention within windows, which every second block shifts by a
roll of the image; three stages, with patches merged in between."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"width": 16, "head": 8, "window": 2, "classes": 16, "batch": 8, "side": 32}


def _windows(image: jax.Array, window: int) -> jax.Array:
    """[batch, height, width, channels] -> [batch * windows, window * window, channels]."""
    batch, height, width, channels = image.shape
    cut = image.reshape(batch, height // window, window, width // window, window, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(-1, window * window, channels)


def _image(windows: jax.Array, window: int, shape: tuple[int, ...]) -> jax.Array:
    """The image of `shape` that `_windows` cut."""
    batch, height, width, channels = shape
    cut = windows.reshape(batch, height // window, width // window, window, window, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(shape)


def _merged(image: jax.Array) -> jax.Array:
    """Each square of four pixels as one, with four times the channels."""
    batch, height, width, channels = image.shape
    cut = image.reshape(batch, height // 2, 2, width // 2, 2, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // 2, width // 2, 4 * channels)


class Swin(nn.Module):
    width: int
    head: int
    window: int
    classes: int
    stages: int = 3
    blocks: int = 2

    def _attention(self, x: jax.Array, name: str) -> jax.Array:
        channels = x.shape[-1]
        heads, area = channels // self.head, self.window**2
        q, k, v = jnp.split(nn.DenseGeneral((heads, 3 * channels // heads))(x), 3, -1)
        bias = self.param(name, nn.initializers.normal(0.02), (heads, area, area))
        return nn.DenseGeneral(channels, axis=(-2, -1))(nn.dot_product_attention(q, k, v, bias=bias[None]))

    def _block(self, x: jax.Array, stage: int, block: int) -> jax.Array:
        shifted, shift = block % 2 == 1, self.window // 2
        y = nn.LayerNorm()(x)
        if shifted:
            y = jnp.roll(y, (-shift, -shift), (1, 2))
        y = self._attention(_windows(y, self.window), f"bias_{stage}_{block}")
        y = _image(y, self.window, x.shape)
        if shifted:
            y = jnp.roll(y, (shift, shift), (1, 2))
        x = x + y
        channels = x.shape[-1]
        return x + nn.Dense(channels)(nn.gelu(nn.Dense(4 * channels)(nn.LayerNorm()(x))))

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (4, 4), (4, 4))(image)
        for stage in range(self.stages):
            if stage:
                x = nn.Dense(2 * x.shape[-1], use_bias=False)(nn.LayerNorm()(_merged(x)))
            for block in range(self.blocks):
                x = self._block(x, stage, block)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def training(
    width: int = 96, head: int = 32, window: int = 7, classes: int = 1000, batch: int = 64, side: int = 224
) -> Training:
    def loss(logits, batch):
        return cross_entropy(logits, batch[1])

    return training_of(Swin(width, head, window, classes), (f32(batch, side, side, 3),), i32(batch), loss)
