"""Soft actor-critic in flax linen, trained with AdamW: a policy, a pair of critics and their targets in one loss."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"width": 32, "observed": 8, "acted": 2, "batch": 16}

_DISCOUNT = 0.99
_TEMPERATURE = 0.1


class Critic(nn.Module):
    width: int

    @nn.compact
    def __call__(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Two values of each action, as values[critic, batch]."""
        x = jnp.concatenate([observation, action], -1)
        values = []
        for _ in range(2):
            y = x
            for _ in range(3):
                y = nn.relu(nn.LayerNorm()(nn.Dense(self.width)(y)))
            values.append(nn.Dense(1)(y)[..., 0])
        return jnp.stack(values)


class Policy(nn.Module):
    width: int
    acted: int

    @nn.compact
    def __call__(self, observation: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        """An action and the logarithm of its probability, up to a constant."""
        x = observation
        for _ in range(2):
            x = nn.relu(nn.Dense(self.width)(x))
        mean, log_deviation = jnp.split(nn.Dense(2 * self.acted)(x), 2, -1)
        log_deviation = jnp.clip(log_deviation, -5, 2)
        action = jnp.tanh(mean + jnp.exp(log_deviation) * noise)
        return action, (-0.5 * noise**2 - log_deviation - jnp.log(1 - action**2 + 1e-6)).sum(-1)


class SoftActorCritic(nn.Module):
    width: int
    acted: int

    @nn.compact
    def __call__(
        self, observation: jax.Array, action: jax.Array, reward: jax.Array, later: jax.Array, later_noise: jax.Array,
        noise: jax.Array,
    ) -> jax.Array:  # fmt: skip
        """The loss of each transition from `observation` to `later`: that of the critics and that of the policy."""
        policy = Policy(width=self.width, acted=self.acted, name="policy")
        critic = Critic(self.width, name="critic")
        critic_target = Critic(self.width, name="critic_target")
        later_action, later_log = policy(later, later_noise)
        later_value = critic_target(later, later_action).min(0) - _TEMPERATURE * later_log
        target = jax.lax.stop_gradient(reward + _DISCOUNT * later_value)
        critic_loss = ((critic(observation, action) - target) ** 2).sum(0)
        chosen, chosen_log = policy(observation, noise)
        return critic_loss + (_TEMPERATURE * chosen_log - critic(observation, chosen).min(0))


def training(width: int = 1024, observed: int = 48, acted: int = 6, batch: int = 8192) -> Training:
    observation, action = f32(batch, observed), f32(batch, acted)
    inputs = (observation, action, f32(batch), observation, action, action)
    return training_of(SoftActorCritic(width=width, acted=acted), inputs, f32(), lambda losses, batch: losses.mean())
