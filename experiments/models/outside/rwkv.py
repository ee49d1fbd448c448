"""Time mixing of RWKV in plain jax, trained with AdamW: decayed sums over time as an associative scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 8, "batch": 8, "length": 8}


def training(width: int = 1024, batch: int = 32, length: int = 1024) -> Training:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        names = ("receptance", "key", "value", "out")
        keys = jax.random.split(key, len(names))
        dense = {n: jax.random.normal(k, (width, width)) * width**-0.5 for n, k in zip(names, keys, strict=True)}
        return {**dense, "decay": jnp.zeros(width)}

    def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        def after(first, then):
            return first[0] * then[0], then[0] * first[1] + then[1], then[0] * first[2] + then[2]

        before = jnp.pad(batch["x"], ((0, 0), (1, 0), (0, 0)))[:, :-1]
        mixed = 0.5 * (batch["x"] + before)
        receptance = jax.nn.sigmoid(mixed @ params["receptance"])
        key, value = jnp.exp(jnp.clip(mixed @ params["key"], -5, 5)), mixed @ params["value"]
        decay = jnp.broadcast_to(jnp.exp(-jnp.exp(params["decay"])), key.shape)
        _, above, below = jax.lax.associative_scan(after, (decay, key * value, key), axis=1)
        return jnp.mean(((receptance * above / (below + 1e-6)) @ params["out"] - batch["wanted"]) ** 2)

    tokens = f32(batch, length, width)
    return around(loss, optax.adamw(1e-3), init, {"x": tokens, "wanted": tokens})
