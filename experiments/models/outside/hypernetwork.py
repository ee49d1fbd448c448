"""Hypernetwork in plain jax, trained with momentum: each task's embedding makes the weights of its own perceptron."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"tasks": 8, "points": 4, "embedding": 8, "hidden": 16, "inputs": 4, "width": 4}


def training(
    tasks: int = 1024, points: int = 1024, embedding: int = 128, hidden: int = 512, inputs: int = 32, width: int = 64
) -> Training:
    sizes = ((inputs, width), (width, width), (width, 1))

    def init(key: jax.Array) -> dict[str, jax.Array]:
        first, *keys = jax.random.split(key, 4)
        made = {f"make_{i}": jax.random.normal(k, (hidden, *sizes[i])) * 0.05 for i, k in enumerate(keys)}
        return {"embed": jax.random.normal(first, (embedding, hidden)) * embedding**-0.5, **made}

    def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        def of_task(task: jax.Array, x: jax.Array) -> jax.Array:
            h = jax.nn.relu(task @ params["embed"])
            for i in range(3):
                weights = jnp.tensordot(h, params[f"make_{i}"], 1)
                x = x @ weights if i == 2 else jnp.tanh(x @ weights)
            return x[..., 0]

        return jnp.mean((jax.vmap(of_task)(batch["task"], batch["x"]) - batch["y"]) ** 2)

    return around(
        loss, optax.sgd(1e-2, momentum=0.9), init,
        {"task": f32(tasks, embedding), "x": f32(tasks, points, inputs), "y": f32(tasks, points)},
    )  # fmt: skip
