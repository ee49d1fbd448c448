"""Generator of DCGAN in flax linen, trained with AdamW to make given images: transposed convolutions, batch norm."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"widths": (32, 16, 8, 8), "noise": 16, "batch": 8}


class Generator(nn.Module):
    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, noise: jax.Array, image: jax.Array) -> jax.Array:
        first, *others = self.widths
        x = nn.Dense(4 * 4 * first)(noise).reshape(-1, 4, 4, first)
        for width in others:
            x = nn.ConvTranspose(width, (4, 4), strides=(2, 2))(x)
            x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
        x = nn.ConvTranspose(image.shape[-1], (4, 4), strides=(2, 2))(x)
        return jnp.tanh(x)


def training(widths: tuple[int, ...] = (512, 256, 128, 64), noise: int = 128, batch: int = 512) -> Training:
    side = 4 * 2 ** len(widths)
    return training_of(
        Generator(widths),
        (f32(batch, noise), f32(batch, side, side, 3)),
        f32(),
        lambda made, batch: ((made - batch[0][1]) ** 2).mean(),
        statistics=("batch_stats",),
    )
