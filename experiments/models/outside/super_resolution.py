"""Super-resolution (EDSR) in flax linen, trained with AdamW: scaled residual convolutions, channels become pixels."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"channels": 8, "blocks": 2, "batch": 8, "side": 8}


class SuperResolution(nn.Module):
    channels: int
    blocks: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = h = nn.Conv(self.channels, (3, 3))(image)
        for _ in range(self.blocks):
            h = h + 0.1 * nn.Conv(self.channels, (3, 3))(nn.relu(nn.Conv(self.channels, (3, 3))(h)))
        x = x + nn.Conv(self.channels, (3, 3))(h)
        x = nn.Conv(4 * self.channels, (3, 3))(x)
        batch, height, width, _ = x.shape
        x = x.reshape(batch, height, width, 2, 2, self.channels).transpose(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch, 2 * height, 2 * width, self.channels)
        return nn.Conv(image.shape[-1], (3, 3))(x)


def training(channels: int = 64, blocks: int = 6, batch: int = 128, side: int = 48) -> Training:
    return training_of(
        SuperResolution(channels, blocks),
        (f32(batch, side, side, 3),),
        f32(batch, 2 * side, 2 * side, 3),
        lambda made, batch: jnp.abs(made - batch[1]).mean(),
    )
