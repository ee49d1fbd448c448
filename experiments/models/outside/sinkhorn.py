"""Optimal transport by Sinkhorn's iterations in plain jax, trained with SGD: a loop of log-sum-exps of a table."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 4, "batch": 8, "points": 8, "iterations": 3}

BLUR = 0.1


def training(width: int = 64, batch: int = 64, points: int = 512, iterations: int = 20) -> Training:
    def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        x, y = batch["x"] @ params["w"], batch["y"]
        cost = (x**2).sum(-1)[:, :, None] + (y**2).sum(-1)[:, None] - 2 * jnp.einsum("bnd,bmd->bnm", x, y)

        def iterate(_, both):
            _, g = both
            f = -BLUR * jax.nn.logsumexp((g[:, None] - cost) / BLUR, axis=2)
            return f, -BLUR * jax.nn.logsumexp((f[:, :, None] - cost) / BLUR, axis=1)

        start = (jnp.zeros(cost.shape[:2]), jnp.zeros((len(cost), cost.shape[2])))
        f, g = jax.lax.fori_loop(0, iterations, iterate, start)
        return (f + g).mean()

    return around(
        loss,
        optax.sgd(1e-2),
        lambda key: {"w": jax.random.normal(key, (width, width)) * width**-0.5},
        {"x": f32(batch, points, width), "y": f32(batch, points, width)},
    )
