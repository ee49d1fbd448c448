"""DQN in flax linen, trained with RMSProp: values of actions from frames of bytes, and of a network left behind."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32, training_of

SMALL = {"channels": 8, "width": 16, "actions": 64, "batch": 8, "side": 44}


class Values(nn.Module):
    """The value of each action."""

    channels: int
    width: int
    actions: int

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        x = frames.astype(jnp.float32) / 255
        for channels, window, stride in ((self.channels, 8, 4), (2 * self.channels, 4, 2), (2 * self.channels, 3, 1)):
            x = nn.relu(nn.Conv(channels, (window, window), (stride, stride), padding="VALID")(x))
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(self.actions)(nn.relu(nn.Dense(self.width)(x)))


class Dqn(nn.Module):
    """The loss of each transition."""

    channels: int
    width: int
    actions: int

    @nn.compact
    def __call__(self, frames: jax.Array, next_frames: jax.Array, action: jax.Array, reward: jax.Array) -> jax.Array:
        values = Values(self.channels, self.width, self.actions, name="online")(frames)
        next_values = Values(self.channels, self.width, self.actions, name="target")(next_frames)
        target = reward + 0.99 * jax.lax.stop_gradient(next_values.max(-1))
        taken = jnp.take_along_axis(values, action[:, None], 1)[:, 0]
        return optax.huber_loss(taken, target)


def training(channels: int = 32, width: int = 512, actions: int = 18, batch: int = 2048, side: int = 84) -> Training:
    frames = jax.ShapeDtypeStruct((batch, side, side, 4), jnp.uint8)
    return training_of(
        Dqn(channels, width, actions),
        (frames, frames, i32(batch), f32(batch)),
        f32(),
        lambda losses, batch: losses.mean(),
        optax.rmsprop(1e-4),
    )
