"""Normalising flow in plain jax, trained with Adam: coupling layers with a perceptron each, halves changing places."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"features": 8, "hidden": 16, "layers": 2, "batch": 16}


def training(features: int = 256, hidden: int = 1024, layers: int = 6, batch: int = 32_768) -> Training:
    half = features // 2

    def init(key: jax.Array) -> list[Any]:
        def perceptron(key: jax.Array) -> list[dict[str, jax.Array]]:
            widths = (half, hidden, hidden, 2 * half)
            return [
                {"w": jax.random.normal(k, pair) * pair[0] ** -0.5, "b": jnp.zeros(pair[1])}
                for k, pair in zip(jax.random.split(key, 3), pairwise(widths), strict=True)
            ]

        return [perceptron(k) for k in jax.random.split(key, layers)]

    def loss(params: list[Any], batch: dict[str, jax.Array]) -> jax.Array:
        x, log_volume = batch["x"], jnp.zeros(())
        for layer in params:
            kept, changed = jnp.split(x, 2, -1)
            h = kept
            for dense in layer[:-1]:
                h = jnp.tanh(h @ dense["w"] + dense["b"])
            scale, shift = jnp.split(h @ layer[-1]["w"] + layer[-1]["b"], 2, -1)
            scale = 2 * jnp.tanh(scale / 2)
            x = jnp.concatenate([changed * jnp.exp(scale) + shift, kept], -1)
            log_volume = log_volume + scale.sum(-1)
        return (0.5 * (x**2).sum(-1) - log_volume).mean()

    return around(loss, optax.adam(1e-4), init, {"x": f32(batch, features)})
