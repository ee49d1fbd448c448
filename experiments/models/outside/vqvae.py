"""VQ-VAE in flax linen, trained with Adam: strided convolutions, the nearest of a table of codes, and back."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"channels": 16, "codes": 32, "width": 8, "batch": 8, "side": 16}


class Residual(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Conv(self.channels // 2, (3, 3))(nn.relu(x))
        return x + nn.Conv(self.channels, (1, 1))(nn.relu(y))


class VqVae(nn.Module):
    channels: int
    codes: int
    width: int

    @nn.compact
    def __call__(self, image: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = nn.relu(nn.Conv(self.channels // 2, (4, 4), (2, 2))(image))
        x = nn.relu(nn.Conv(self.channels, (4, 4), (2, 2))(x))
        x = nn.Conv(self.width, (1, 1))(Residual(self.channels)(Residual(self.channels)(x)))
        table = self.param("codes", nn.initializers.normal(1.0), (self.codes, self.width))
        distance = (x**2).sum(-1, keepdims=True) - 2 * x @ table.T + (table**2).sum(-1)
        nearest = table[jnp.argmin(distance, -1)]
        stop = jax.lax.stop_gradient
        apart = ((stop(x) - nearest) ** 2).mean() + 0.25 * ((x - stop(nearest)) ** 2).mean()
        x = nn.Conv(self.channels, (3, 3))(x + stop(nearest - x))
        x = Residual(self.channels)(Residual(self.channels)(x))
        x = nn.relu(nn.ConvTranspose(self.channels // 2, (4, 4), (2, 2))(nn.relu(x)))
        return nn.ConvTranspose(image.shape[-1], (4, 4), (2, 2))(x), apart


def training(channels: int = 128, codes: int = 512, width: int = 64, batch: int = 256, side: int = 64) -> Training:
    model = VqVae(channels, codes, width)

    def loss(params, batch):
        image, apart = model.apply({"params": params}, batch["image"])
        return ((image - batch["image"]) ** 2).mean() + apart

    return around(
        loss,
        optax.adam(2e-4),
        lambda key: model.init(key, jnp.zeros((1, side, side, 3)))["params"],
        {"image": f32(batch, side, side, 3)},
    )
