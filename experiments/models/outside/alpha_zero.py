"""AlphaZero's network in flax linen, trained with SGD, momentum and decay: a residual tower, a policy and a value."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"blocks": 2, "channels": 8, "hidden": 16, "side": 5, "planes": 3, "batch": 8}


class AlphaZero(nn.Module):
    blocks: int
    channels: int
    hidden: int

    @nn.compact
    def __call__(self, board: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Logits of a move to each place or a pass, and the value of the board."""
        batch, height, width, _ = board.shape
        conv = partial(nn.Conv, self.channels, (3, 3), use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=False)
        x = nn.relu(norm()(conv()(board)))
        for _ in range(self.blocks):
            y = nn.relu(norm()(conv()(x)))
            y = norm()(conv()(y))
            x = nn.relu(x + y)
        policy = nn.relu(norm()(nn.Conv(2, (1, 1))(x))).reshape(batch, -1)
        value = nn.relu(norm()(nn.Conv(1, (1, 1))(x))).reshape(batch, -1)
        logits = nn.Dense(height * width + 1, name="policy")(policy)
        value = nn.relu(nn.Dense(self.hidden, name="value_hidden")(value))
        return logits, jnp.tanh(nn.Dense(1, name="value")(value))[:, 0]


def training(
    blocks: int = 5, channels: int = 128, hidden: int = 256, side: int = 19, planes: int = 17, batch: int = 512
) -> Training:
    def loss(outputs: tuple[jax.Array, jax.Array], batch: tuple[jax.Array, tuple[jax.Array, jax.Array]]) -> jax.Array:
        (logits, value), (visits, outcome) = outputs, batch[1]
        return (optax.softmax_cross_entropy(logits, visits) + (value - outcome) ** 2).mean()

    return training_of(
        AlphaZero(blocks=blocks, channels=channels, hidden=hidden),
        (f32(batch, side, side, planes),),
        (f32(batch, side * side + 1), f32(batch)),
        loss,
        optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9)),
        statistics=("batch_stats",),
    )
