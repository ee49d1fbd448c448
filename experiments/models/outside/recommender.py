"""Recommender in plain jax, trained with Adagrad: look-ups in tables, products of all pairs, perceptrons."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around


def _layers(key: jax.Array, widths: tuple[int, ...]) -> list[jax.Array]:
    keys = jax.random.split(key, len(widths) - 1)
    return [jax.random.normal(k, pair) * pair[0] ** -0.5 for k, pair in zip(keys, pairwise(widths), strict=True)]


def training(tables: int = 4, rows: int = 100_000, width: int = 128, batch: int = 16_384) -> Training:
    first, second = np.triu_indices(tables + 1, 1)

    def init(key: jax.Array) -> dict[str, Any]:
        below, above, *keys = jax.random.split(key, tables + 2)
        return {
            "below": _layers(below, (13, 512, 256, width)),
            "tables": [jax.random.normal(k, (rows, width)) * 0.01 for k in keys],
            "above": _layers(above, (width + len(first), 1024, 1024, 1)),
        }

    def loss(params: dict[str, Any], batch: dict[str, jax.Array]) -> jax.Array:
        x = batch["dense"]
        for w in params["below"]:
            x = jax.nn.relu(x @ w)
        found = [t[batch["rows"][:, k]] for k, t in enumerate(params["tables"])]
        vectors = jnp.stack([x, *found], 1)
        pairs = jnp.einsum("bic,bjc->bij", vectors, vectors)[:, first, second]
        x = jnp.concatenate([x, pairs], 1)
        for w in params["above"][:-1]:
            x = jax.nn.relu(x @ w)
        return optax.sigmoid_binary_cross_entropy((x @ params["above"][-1])[:, 0], batch["clicked"]).mean()

    examples = {"dense": f32(batch, 13), "rows": i32(batch, tables), "clicked": f32(batch)}
    return around(loss, optax.adagrad(1e-2), init, examples, {"tables/*": 1})
