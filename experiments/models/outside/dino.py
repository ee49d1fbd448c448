"""Self-distillation (DINO) in plain jax, trained with AdamW: a ViT learns what a moving average of itself says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, training_by

SMALL = {"width": 16, "heads": 2, "layers": 1, "out": 64, "batch": 8, "tokens": 9}


def _norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def training(
    width: int = 384, heads: int = 6, layers: int = 4, out: int = 65_536, batch: int = 256, tokens: int = 196
) -> Training:
    optimizer = optax.adamw(1e-3)

    def init(key: jax.Array) -> dict[str, Any]:
        keys = iter(jax.random.split(key, 2 + 4 * layers))

        def dense(rows: int, columns: int) -> jax.Array:
            return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5

        blocks = [
            {
                "qkv": dense(width, 3 * width), "out": dense(width, width),
                "up": dense(width, 4 * width), "down": dense(4 * width, width),
            }
            for _ in range(layers)
        ]  # fmt: skip
        return {"embed": dense(width, width), "blocks": blocks, "head": dense(width, out)}

    def vit(params: dict[str, Any], x: jax.Array) -> jax.Array:
        x = x @ params["embed"]
        for block in params["blocks"]:
            qkv = jnp.split(_norm(x) @ block["qkv"], 3, -1)
            q, k, v = (each.reshape(*each.shape[:2], heads, -1) for each in qkv)
            x = x + jax.nn.dot_product_attention(q, k, v).reshape(x.shape) @ block["out"]
            x = x + jax.nn.gelu(_norm(x) @ block["up"]) @ block["down"]
        return _norm(x).mean(1) @ params["head"]

    def loss(student: Any, teacher: Any, batch: dict[str, jax.Array]) -> jax.Array:
        wanted = jax.lax.stop_gradient(jax.nn.softmax(vit(teacher, batch["other"]) / 0.04))
        return -(wanted * jax.nn.log_softmax(vit(student, batch["one"]) / 0.1)).sum(-1).mean()

    def step(params: dict[str, Any], opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
        student, teacher = params["student"], params["teacher"]
        value, gradients = jax.value_and_grad(loss)(student, teacher, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, student)
        student = optax.apply_updates(student, updates)
        teacher = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new, teacher, student)
        return {"student": student, "teacher": teacher}, opt_state, value

    def initial(key: jax.Array) -> tuple[Any, Any]:
        student, teacher = init(key), init(key)
        return {"student": student, "teacher": teacher}, optimizer.init(student)

    images = f32(batch, tokens, width)
    return training_by(step, initial, {"one": images, "other": images})
