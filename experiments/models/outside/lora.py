"""Low-rank adapters of a frozen decoder in plain jax, trained with AdamW: gradients of the adapters alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, training_by

SMALL = {"width": 16, "heads": 2, "layers": 1, "rank": 4, "batch": 8, "length": 8}


def _norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def training(
    width: int = 1024, heads: int = 16, layers: int = 4, rank: int = 16, batch: int = 32, length: int = 512
) -> Training:
    optimizer = optax.adamw(1e-3)
    base = {
        "query": (width, width), "key": (width, width), "value": (width, width), "out": (width, width),
        "up": (width, 4 * width), "down": (4 * width, width),
    }  # fmt: skip
    low = {
        "query_down": (width, rank),
        "query_up": (rank, width),
        "value_down": (width, rank),
        "value_up": (rank, width),
    }

    def initial(key: jax.Array) -> tuple[Any, Any]:
        def blocks(key: jax.Array, shapes: dict[str, tuple[int, int]]) -> list[dict[str, jax.Array]]:
            keys = jax.random.split(key, (layers, len(shapes)))
            return [
                {
                    name: jax.random.normal(keys[layer, i], shape) * shape[0] ** -0.5
                    for i, (name, shape) in enumerate(shapes.items())
                }
                for layer in range(layers)
            ]

        frozen, adapters = jax.random.split(key)
        params = {"frozen": blocks(frozen, base), "adapters": blocks(adapters, low)}
        return params, optimizer.init(params["adapters"])

    def loss(adapters: Any, frozen: Any, batch: dict[str, jax.Array]) -> jax.Array:
        x = batch["x"]
        for own, block in zip(adapters, frozen, strict=True):
            y = _norm(x)
            q = y @ block["query"] + y @ own["query_down"] @ own["query_up"]
            v = y @ block["value"] + y @ own["value_down"] @ own["value_up"]
            q, k, v = (each.reshape(*each.shape[:2], heads, -1) for each in (q, y @ block["key"], v))
            x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ block["out"]
            x = x + jax.nn.silu(_norm(x) @ block["up"]) @ block["down"]
        return jnp.mean((x - batch["wanted"]) ** 2)

    def step(params: Any, opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params["adapters"], params["frozen"], batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params["adapters"])
        return {**params, "adapters": optax.apply_updates(params["adapters"], updates)}, opt_state, value

    tokens = f32(batch, length, width)
    return training_by(step, initial, {"x": tokens, "wanted": tokens})
