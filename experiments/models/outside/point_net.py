"""PointNet++ of one level in plain jax, trained with AdamW: nearest points are gathered, largest features are kept."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"batch": 8, "points": 16, "centres": 4, "near": 3, "width": 8}


def training(
    batch: int = 512, points: int = 1024, centres: int = 256, near: int = 32, width: int = 128, classes: int = 40
) -> Training:
    sizes = [(6, width // 2), (width // 2, width), (width, 4 * width), (4 * width, 2 * width), (2 * width, classes)]

    def init(key: jax.Array) -> list[jax.Array]:
        keys = jax.random.split(key, len(sizes))
        return [jax.random.normal(k, size) * size[0] ** -0.5 for k, size in zip(keys, sizes, strict=True)]

    def of_cloud(params: list[jax.Array], cloud: jax.Array) -> jax.Array:
        centre = cloud[:centres]
        apart = (centre**2).sum(-1)[:, None] - 2 * centre @ cloud.T + (cloud**2).sum(-1)
        _, nearest = jax.lax.top_k(-jax.lax.stop_gradient(apart), near)
        local = cloud[nearest] - centre[:, None]
        x = jnp.concatenate([local, jnp.broadcast_to(centre[:, None], local.shape)], -1)
        x = jax.nn.relu(jax.nn.relu(x @ params[0]) @ params[1]).max(1)
        x = jax.nn.relu(x @ params[2]).max(0)
        return jax.nn.relu(x @ params[3]) @ params[4]

    def loss(params: list[jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        return cross_entropy(jax.vmap(of_cloud, (None, 0))(params, batch["cloud"]), batch["label"])

    return around(loss, optax.adamw(1e-3), init, {"cloud": f32(batch, points, 3), "label": i32(batch)})
