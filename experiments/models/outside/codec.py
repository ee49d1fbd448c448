"""Neural audio codec in flax linen, trained with Adam: strided and dilated convolutions along time, and back."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 8, "strides": (2, 2), "batch": 8, "samples": 64}


class Dilated(nn.Module):
    """Three residual units, each reaching three times as far as the one before."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for dilation in (1, 3, 9):
            h = nn.Conv(x.shape[-1], (7,), kernel_dilation=(dilation,))(nn.elu(x))
            x = x + nn.Conv(x.shape[-1], (1,))(nn.elu(h))
        return x


class Codec(nn.Module):
    width: int
    strides: tuple[int, ...]

    @nn.compact
    def __call__(self, wave: jax.Array) -> jax.Array:
        x, width = nn.Conv(self.width, (7,))(wave), self.width
        for stride in self.strides:
            width *= 2
            x = nn.Conv(width, (2 * stride,), strides=(stride,))(nn.elu(Dilated()(x)))
        x = nn.Conv(width, (7,))(jnp.tanh(nn.Conv(16, (3,))(nn.elu(x))))
        for stride in reversed(self.strides):
            width //= 2
            x = Dilated()(nn.ConvTranspose(width, (2 * stride,), strides=(stride,))(nn.elu(x)))
        return nn.Conv(1, (7,))(nn.elu(x))


def training(width: int = 32, strides: tuple[int, ...] = (2, 4, 5), batch: int = 64, samples: int = 12_800) -> Training:
    model = Codec(width, strides)

    def loss(params, batch):
        return jnp.abs(model.apply({"params": params}, batch["wave"]) - batch["wave"]).mean()

    return around(
        loss,
        optax.adam(3e-4),
        lambda key: model.init(key, jnp.zeros((1, samples, 1)))["params"],
        {"wave": f32(batch, samples, 1)},
    )
