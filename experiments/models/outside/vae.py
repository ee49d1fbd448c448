"""Variational autoencoder in flax linen, trained with AdamW: strided convolutions to a normal, transposed ones back."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"widths": (8, 16, 16), "latent": 8, "batch": 8, "side": 16}


class Vae(nn.Module):
    widths: tuple[int, ...]
    latent: int

    @nn.compact
    def __call__(self, image: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        x = image
        for width in self.widths:
            x = nn.relu(nn.Conv(width, (4, 4), strides=2)(x))
        inner = x.shape[1:]
        x = x.reshape(x.shape[0], -1)
        mean, log_variance = jnp.split(nn.Dense(2 * self.latent)(x), 2, -1)
        drawn = mean + jnp.exp(0.5 * log_variance) * noise
        x = nn.relu(nn.Dense(math.prod(inner))(drawn)).reshape(-1, *inner)
        for width in self.widths[-2::-1]:
            x = nn.relu(nn.ConvTranspose(width, (4, 4), strides=(2, 2))(x))
        return nn.ConvTranspose(image.shape[-1], (4, 4), strides=(2, 2))(x), mean, log_variance


def training(widths: tuple[int, ...] = (32, 64, 128), latent: int = 128, batch: int = 1024, side: int = 64) -> Training:
    def loss(outputs, batch):
        (made, mean, log_variance), (image, _) = outputs, batch[0]
        off = ((made - image) ** 2).sum((1, 2, 3)).mean()
        return off + 0.5 * (mean**2 + jnp.exp(log_variance) - log_variance).sum(-1).mean()

    return training_of(Vae(widths, latent), (f32(batch, side, side, 3), f32(batch, latent)), f32(), loss)
