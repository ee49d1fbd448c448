"""Neural radiance field in plain jax, trained with Adam: points along rays, sines of them, and a narrow perceptron."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "rays": 16, "samples": 8}

OCTAVES = 10
"""Of sines and cosines of each coordinate."""


def training(width: int = 256, layers: int = 6, rays: int = 4096, samples: int = 64) -> Training:
    def init(key: jax.Array) -> list[jax.Array]:
        pairs = list(pairwise((3 + 6 * OCTAVES, *[width] * layers, 4)))
        keys = jax.random.split(key, len(pairs))
        return [jax.random.normal(k, pair) * pair[0] ** -0.5 for k, pair in zip(keys, pairs, strict=True)]

    def loss(params: list[jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        along = jnp.linspace(2.0, 6.0, samples)
        points = batch["origin"][:, None] + batch["direction"][:, None] * along[:, None]
        angles = (points[..., None] * 2.0 ** jnp.arange(OCTAVES)).reshape(*points.shape[:-1], 3 * OCTAVES)
        h = jnp.concatenate([points, jnp.sin(angles), jnp.cos(angles)], -1)
        for w in params[:-1]:
            h = jax.nn.relu(h @ w)
        raw = h @ params[-1]
        colour, density = jax.nn.sigmoid(raw[..., :3]), jax.nn.relu(raw[..., 3])
        opaque = 1 - jnp.exp(-density * (4.0 / samples))
        left = jnp.cumprod(jnp.concatenate([jnp.ones_like(opaque[:, :1]), 1 - opaque + 1e-10], -1), -1)[:, :-1]
        return jnp.mean((((opaque * left)[..., None] * colour).sum(1) - batch["colour"]) ** 2)

    return around(
        loss, optax.adam(1e-3), init, {"origin": f32(rays, 3), "direction": f32(rays, 3), "colour": f32(rays, 3)}
    )
