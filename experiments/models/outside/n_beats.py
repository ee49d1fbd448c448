"""N-BEATS in flax linen, trained with AdamW: perceptrons that explain a series bit by bit, and add up its forecast."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"blocks": 2, "width": 32, "basis": 8, "past": 16, "future": 8, "batch": 16}


class NBeats(nn.Module):
    blocks: int
    width: int
    basis: int
    future: int

    def _written(self, x: jax.Array, length: int) -> jax.Array:
        series = nn.Dense(length)
        return series(nn.Dense(self.basis)(x))

    @nn.compact
    def __call__(self, series: jax.Array) -> jax.Array:
        forecast = 0.0
        for _ in range(self.blocks):
            x = series
            for _ in range(4):
                x = nn.relu(nn.Dense(self.width)(x))
            series = series - self._written(x, series.shape[-1])
            forecast = forecast + self._written(x, self.future)
        return forecast


def training(
    blocks: int = 6, width: int = 512, basis: int = 32, past: int = 96, future: int = 24, batch: int = 16_384
) -> Training:
    return training_of(
        NBeats(blocks=blocks, width=width, basis=basis, future=future),
        (f32(batch, past),),
        f32(batch, future),
        lambda forecast, batch: jnp.abs(forecast - batch[1]).mean(),
    )
