"""Masked autoencoder in flax linen, trained with AdamW: a quarter of the patches is read, all are written."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, i32, training_of
from experiments.models.outside.wav2vec import Block

SMALL = {
    "layers": 2, "width": 32, "heads": 2, "decoder_layers": 2, "decoder_width": 16, "decoder_heads": 2, "patch": 4,
    "side": 16, "batch": 8,
}  # fmt: skip


def _patches(image: jax.Array, side: int) -> jax.Array:
    """image[batch, row, column, colour] -> patches[batch, patch, pixel and colour]."""
    batch, height, width, colours = image.shape
    tiled = image.reshape(batch, height // side, side, width // side, side, colours)
    return tiled.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, side * side * colours)


class MaskedAutoencoder(nn.Module):
    layers: int
    width: int
    heads: int
    decoder_layers: int
    decoder_width: int
    decoder_heads: int
    patch: int

    @nn.compact
    def __call__(self, image: jax.Array, order: jax.Array) -> jax.Array:
        """The squared error of each patch; `order` is a permutation of the patches, of which the first are read."""
        patches = _patches(image, self.patch)
        batch, count, pixels = patches.shape
        kept = count // 4
        normal = nn.initializers.normal()
        x = nn.Dense(self.width)(patches) + self.param("encoder_positions", normal, (count, self.width))
        x = jnp.take_along_axis(x, order[:, :kept, None], 1)
        for _ in range(self.layers):
            x = Block(self.heads)(x)
        x = nn.Dense(self.decoder_width)(nn.LayerNorm()(x))
        blank = self.param("blank", normal, (1, 1, self.decoder_width))
        y = jnp.concatenate([x, jnp.broadcast_to(blank, (batch, count - kept, self.decoder_width))], 1)
        y = jnp.take_along_axis(y, jnp.argsort(order, 1)[:, :, None], 1)
        y = y + self.param("decoder_positions", normal, (count, self.decoder_width))
        for _ in range(self.decoder_layers):
            y = Block(self.decoder_heads)(y)
        return ((nn.Dense(pixels)(nn.LayerNorm()(y)) - patches) ** 2).mean(-1)


def training(
    layers: int = 3, width: int = 384, heads: int = 6, decoder_layers: int = 2, decoder_width: int = 256,
    decoder_heads: int = 8, patch: int = 16, side: int = 224, batch: int = 128,
) -> Training:  # fmt: skip
    model = MaskedAutoencoder(
        layers=layers,
        width=width,
        heads=heads,
        decoder_layers=decoder_layers,
        decoder_width=decoder_width,
        decoder_heads=decoder_heads,
        patch=patch,
    )
    inputs = (f32(batch, side, side, 3), i32(batch, (side // patch) ** 2))
    return training_of(model, inputs, f32(), lambda errors, batch: errors.mean())
