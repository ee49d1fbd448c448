"""Convolutional LSTM in flax linen, trained with AdamW to continue a video: two scans over time, one after another."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"channels": 8, "batch": 8, "frames": 3, "side": 8}

Carry = tuple[jax.Array, jax.Array]


class Cell(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, carry: Carry, x: jax.Array) -> tuple[Carry, jax.Array]:
        hidden, memory = carry
        gates = nn.Conv(4 * self.channels, (3, 3))(jnp.concatenate([x, hidden], -1))
        write, keep, show, new = jnp.split(gates, 4, -1)
        memory = nn.sigmoid(keep) * memory + nn.sigmoid(write) * jnp.tanh(new)
        hidden = nn.sigmoid(show) * jnp.tanh(memory)
        return (hidden, memory), hidden


class ConvLstm(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, video: jax.Array) -> jax.Array:
        batch, _, height, width, colors = video.shape
        zeros = jnp.zeros((batch, height, width, self.channels))
        along_time = nn.scan(Cell, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
        _, x = along_time(self.channels)((zeros, zeros), video)
        _, x = along_time(self.channels)((zeros, zeros), x)
        return nn.Conv(colors, (1, 1))(x)


def training(channels: int = 64, batch: int = 128, frames: int = 10, side: int = 64) -> Training:
    video = f32(batch, frames, side, side, 1)
    return training_of(ConvLstm(channels), (video,), video, lambda made, batch: ((made - batch[1]) ** 2).mean())
