"""Learning to learn, as MAML: a convolutional net takes steps of its own on each task, and is improved through them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 8, "layers": 2, "side": 8, "ways": 4, "shots": 2, "steps": 1, "tasks": 8}

Params = dict[str, Any]


def _logits(params: Params, images: jax.Array) -> jax.Array:
    x = images
    for layer in params["layers"]:
        x = jax.lax.conv_general_dilated(x, layer["kernel"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x - x.mean((0, 1, 2))
        x = jax.nn.relu(x * jax.lax.rsqrt((x * x).mean((0, 1, 2)) + 1e-5) * layer["scale"] + layer["shift"])
    return x.mean((1, 2)) @ params["head"] + params["bias"]


def training(
    width: int = 64, layers: int = 4, side: int = 28, ways: int = 20, shots: int = 5, steps: int = 2, tasks: int = 32
) -> Training:
    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, layers + 1)

        def layer(key: jax.Array, into: int) -> Params:
            kernel = jax.random.normal(key, (3, 3, into, width)) * (9 * into) ** -0.5
            return {"kernel": kernel, "scale": jnp.ones(width), "shift": jnp.zeros(width)}

        inner = [layer(k, 1 if number == 0 else width) for number, k in enumerate(keys[:-1])]
        return {"layers": inner, "head": jax.random.normal(keys[-1], (width, ways)) * 0.1, "bias": jnp.zeros(ways)}

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        def of_task(task: dict[str, jax.Array]) -> jax.Array:
            def wrong(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
                return cross_entropy(_logits(params, images), labels)

            learnt = params
            for _ in range(steps):
                gradients = jax.grad(wrong)(learnt, task["seen"], task["seen_labels"])
                learnt = jax.tree.map(lambda p, g: p - 0.4 * g, learnt, gradients)
            return wrong(learnt, task["unseen"], task["unseen_labels"])

        return jax.vmap(of_task)(batch).mean()

    images, labels = f32(tasks, ways * shots, side, side, 1), i32(tasks, ways * shots)
    return around(
        loss,
        optax.adam(1e-3),
        init,
        {"seen": images, "unseen": images, "seen_labels": labels, "unseen_labels": labels},
    )
