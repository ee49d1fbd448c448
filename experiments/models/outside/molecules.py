"""Energies and forces of molecules, as SchNet: forces are a gradient inside of the loss; Adam."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"layers": 1, "width": 16, "radial": 8, "atoms": 4, "neighbours": 3, "batch": 8}

Params = dict[str, Any]


def _soft(x: jax.Array) -> jax.Array:
    return jax.nn.softplus(x) - jnp.log(2.0)


def _near(values: jax.Array, neighbours: jax.Array) -> jax.Array:
    """What neighbours have: values [atoms, features], neighbours [atoms, n] -> [atoms, n, features]."""
    return values[neighbours]


def _energy(params: Params, positions: jax.Array, numbers: jax.Array, neighbours: jax.Array) -> jax.Array:
    """Of each molecule."""
    near = jax.vmap(_near)
    apart = positions[:, :, None] - near(positions, neighbours)
    distance = jnp.sqrt((apart * apart).sum(-1) + 1e-6)
    centres = jnp.linspace(0.0, 5.0, params["layers"][0]["filter"][0].shape[0])
    radial = jnp.exp(-10.0 * (distance[..., None] - centres) ** 2)
    cut = 0.5 * (jnp.cos(jnp.pi * jnp.minimum(distance / 5.0, 1.0)) + 1)
    x = params["atoms"][numbers]
    for layer in params["layers"]:
        taps = _soft(radial @ layer["filter"][0]) @ layer["filter"][1] * cut[..., None]
        gathered = (near(x @ layer["into"], neighbours) * taps).sum(2)
        x = x + _soft(gathered @ layer["out"][0]) @ layer["out"][1]
    return (_soft(x @ params["hidden"]) @ params["energy"]).sum((1, 2))


def training(
    layers: int = 2, width: int = 128, radial: int = 64, atoms: int = 32, neighbours: int = 16, batch: int = 256
) -> Training:
    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 3 + 5 * layers))

        def dense(rows: int, columns: int) -> jax.Array:
            return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5

        def layer() -> Params:
            return {
                "filter": [dense(radial, width), dense(width, width)],
                "into": dense(width, width),
                "out": [dense(width, width), dense(width, width)],
            }

        inner = [layer() for _ in range(layers)]
        return {"atoms": dense(96, width), "layers": inner, "hidden": dense(width, width), "energy": dense(width, 1)}

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        def total(positions: jax.Array) -> tuple[jax.Array, jax.Array]:
            energy = _energy(params, positions, batch["numbers"], batch["neighbours"])
            return energy.sum(), energy

        (_, energy), pulled = jax.value_and_grad(total, has_aux=True)(batch["positions"])
        return jnp.mean((energy - batch["energy"]) ** 2) + 100.0 * jnp.mean((pulled + batch["forces"]) ** 2)

    rate = optax.exponential_decay(5e-4, 1000, 0.96)
    places = f32(batch, atoms, 3)
    return around(
        loss,
        optax.adam(rate),
        init,
        {
            "positions": places,
            "forces": places,
            "energy": f32(batch),
            "numbers": i32(batch, atoms),
            "neighbours": i32(batch, atoms, neighbours),
        },
    )
