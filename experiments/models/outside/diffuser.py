"""Diffuser in flax linen, trained with AdamW: a U-net along the time of trajectories, with group norms and FiLM."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 8, "levels": (1, 2), "batch": 8, "horizon": 8, "features": 4, "groups": 2}


class Unit(nn.Module):
    """Two convolutions; what is known of the noise scales and shifts what is between them."""

    width: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array, noise: jax.Array) -> jax.Array:
        h = nn.silu(nn.GroupNorm(self.groups)(nn.Conv(self.width, (5,))(x)))
        scale, shift = jnp.split(nn.Dense(2 * self.width)(nn.silu(noise))[:, None], 2, -1)
        h = nn.silu(nn.GroupNorm(self.groups)(nn.Conv(self.width, (5,))(h * (1 + scale) + shift)))
        return h + (x if x.shape[-1] == self.width else nn.Conv(self.width, (1,))(x))


class Diffuser(nn.Module):
    width: int
    levels: tuple[int, ...]
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array, noise: jax.Array) -> jax.Array:
        angles = noise[:, None] * jnp.exp(-jnp.linspace(0.0, 9.0, self.width // 2))
        known = nn.Dense(self.width)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))
        features, kept = x.shape[-1], []
        for level in self.levels:
            x = Unit(level * self.width, self.groups)(x, known)
            kept.append(x)
            x = nn.Conv(level * self.width, (3,), strides=(2,))(x)
        for level, skip in zip(reversed(self.levels), reversed(kept), strict=True):
            x = nn.ConvTranspose(level * self.width, (4,), strides=(2,))(x)
            x = Unit(level * self.width, self.groups)(jnp.concatenate([x, skip], -1), known)
        return nn.Conv(features, (1,))(x)


def training(
    width: int = 128, levels: tuple[int, ...] = (1, 2, 4), batch: int = 512, horizon: int = 64, features: int = 23,
    groups: int = 8,
) -> Training:  # fmt: skip
    model = Diffuser(width, levels, groups)

    def loss(params, batch):
        seen = (
            batch["clean"] * jnp.cos(batch["at"])[:, None, None] + batch["drawn"] * jnp.sin(batch["at"])[:, None, None]
        )
        return jnp.mean((model.apply({"params": params}, seen, 1000 * batch["at"]) - batch["drawn"]) ** 2)

    path = f32(batch, horizon, features)
    return around(
        loss,
        optax.adamw(2e-4),
        lambda key: model.init(key, jnp.zeros((1, horizon, features)), jnp.zeros((1,)))["params"],
        {"clean": path, "drawn": path, "at": f32(batch)},
    )
