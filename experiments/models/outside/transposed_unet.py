"""U-Net with transposed convolutions in flax linen, trained with AdamW to segment images: group norm, max pooling."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"widths": (16, 32), "classes": 64, "batch": 8, "side": 8}


def _twice(x: jax.Array, channels: int) -> jax.Array:
    for _ in range(2):
        x = nn.Conv(channels, (3,) * (x.ndim - 2))(x)
        x = nn.relu(nn.GroupNorm(8)(x))
    return x


class UNet(nn.Module):
    """Logits of each pixel of (batch, *space, channels); the innermost of the levels is twice as wide as the last."""

    widths: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        space = x.ndim - 2
        halves = (2,) * space
        skips = []
        for width in self.widths:
            x = _twice(x, width)
            skips.append(x)
            x = nn.max_pool(x, halves, halves)
        x = _twice(x, 2 * self.widths[-1])
        for width in reversed(self.widths):
            x = nn.ConvTranspose(width, halves, halves)(x)
            x = _twice(jnp.concatenate([x, skips.pop()], -1), width)
        return nn.Conv(self.classes, (1,) * space)(x)


def training(widths: tuple[int, ...] = (32, 64, 128), classes: int = 2, batch: int = 128, side: int = 96) -> Training:
    return training_of(
        UNet(widths, classes),
        (f32(batch, side, side, 1),),
        i32(batch, side, side),
        lambda logits, batch: cross_entropy(logits, batch[1]),
    )
