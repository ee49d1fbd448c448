"""A network that is the solution of Burgers' equation: second derivatives by jvp inside of the loss; Adam."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "layers": 2, "points": 64, "edge": 32}

Params = list[dict[str, jax.Array]]


def _solution(params: Params, t: jax.Array, x: jax.Array) -> jax.Array:
    """u(t, x) at each point."""
    y = jnp.stack([t, x], -1)
    for layer in params[:-1]:
        y = jnp.tanh(y @ layer["w"] + layer["b"])
    return (y @ params[-1]["w"] + params[-1]["b"])[:, 0]


def training(width: int = 512, layers: int = 5, points: int = 65_536, edge: int = 8_192) -> Training:
    def init(key: jax.Array) -> Params:
        sizes = list(pairwise((2, *(width,) * layers, 1)))
        keys = jax.random.split(key, len(sizes))
        return [
            {"w": jax.random.normal(k, pair) * pair[0] ** -0.5, "b": jnp.zeros(pair[1])}
            for k, pair in zip(keys, sizes, strict=True)
        ]

    def residual(params: Params, t: jax.Array, x: jax.Array) -> jax.Array:
        ones = jnp.ones_like(x)

        def along_x(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.jvp(lambda x: _solution(params, t, x), (x,), (ones,))

        (u, u_x), (_, u_xx) = jax.jvp(along_x, (x,), (ones,))
        _, u_t = jax.jvp(lambda t: _solution(params, t, x), (t,), (ones,))
        return u_t + u * u_x - 0.01 / jnp.pi * u_xx

    def loss(params: Params, batch: dict[str, dict[str, jax.Array]]) -> jax.Array:
        inside, edge = batch["inside"], batch["edge"]
        known = _solution(params, edge["t"], edge["x"])
        off = residual(params, inside["t"], inside["x"])
        return jnp.mean(off**2) + jnp.mean((known - edge["u"]) ** 2)

    batch = {
        "inside": {name: f32(points) for name in ("t", "x")},
        "edge": {name: f32(edge) for name in ("t", "x", "u")},
    }
    return around(loss, optax.adam(optax.cosine_decay_schedule(1e-3, 20_000)), init, batch)
