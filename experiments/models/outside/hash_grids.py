"""A radiance field over hash grids (instant NGP) in flax linen, trained with AdamW: each level gathers eight corners
from a small table, then narrow MLPs give density and colour, which are summed along the ray."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"levels": 2, "entries": 2**8, "width": 16, "rays": 64, "samples": 8}


def _gathered(table: jax.Array, points: jax.Array) -> jax.Array:
    """Rows of the table [entries, features] at the corners around each point, weighed by how near they are."""
    first = jnp.floor(points).astype(jnp.uint32)
    beyond = points - jnp.floor(points)
    found = 0.0
    for corner in range(8):
        offset = jnp.array([corner & 1, corner >> 1 & 1, corner >> 2 & 1], jnp.uint32)
        mixed = (first + offset) * jnp.array([1, 2_654_435_761, 805_459_861], jnp.uint32)
        row = (mixed[..., 0] ^ mixed[..., 1] ^ mixed[..., 2]) % len(table)
        near = jnp.prod(jnp.where(offset == 1, beyond, 1 - beyond), -1)
        found = found + near[..., None] * table[row]
    return found


class HashGrids(nn.Module):
    levels: int
    entries: int
    width: int

    @nn.compact
    def __call__(self, points: jax.Array) -> jax.Array:
        """Colours [rays, 3] of points [rays, samples, 3]."""
        features = []
        for level in range(self.levels):
            cells = 16 * 2 ** (0.6 * level)
            table = self.param(f"table_{level}", nn.initializers.uniform(1e-4), (self.entries, 2))
            features.append(_gathered(table, points * cells))
        h = nn.relu(nn.Dense(self.width)(jnp.concatenate(features, -1)))
        h = nn.Dense(16)(h)
        density = nn.softplus(h[..., :1])
        h = nn.relu(nn.Dense(self.width)(h))
        h = nn.relu(nn.Dense(self.width)(h))
        colour = nn.sigmoid(nn.Dense(3)(h))
        light = jnp.exp(-jnp.cumsum(density, 1))
        return (light * (1 - jnp.exp(-density)) * colour).sum(1)


def training(levels: int = 8, entries: int = 2**16, width: int = 64, rays: int = 4096, samples: int = 64) -> Training:
    def loss(colours, batch):
        return ((colours - batch[1]) ** 2).mean()

    return training_of(HashGrids(levels, entries, width), (f32(rays, samples, 3),), f32(rays, 3), loss)
