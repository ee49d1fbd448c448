"""Neural ordinary differential equation in plain jax, trained with Adam: Runge-Kutta steps of a perceptron by scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "features": 8, "batch": 8, "steps": 3}


def training(width: int = 1024, features: int = 256, batch: int = 8192, steps: int = 16) -> Training:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        one, two, three = jax.random.split(key, 3)
        return {
            "in": jax.random.normal(one, (features, width)) * features**-0.5,
            "mid": jax.random.normal(two, (width, width)) * width**-0.5,
            "out": jax.random.normal(three, (width, features)) * width**-0.5,
            "time": jnp.zeros((width,)),
        }

    def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
        def slope(y: jax.Array, t: jax.Array) -> jax.Array:
            h = jnp.tanh(y @ params["in"] + t * params["time"])
            return jnp.tanh(h @ params["mid"]) @ params["out"]

        def step(y: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            h = 1.0 / steps
            one = slope(y, t)
            two = slope(y + h / 2 * one, t + h / 2)
            three = slope(y + h / 2 * two, t + h / 2)
            four = slope(y + h * three, t + h)
            return y + h / 6 * (one + 2 * two + 2 * three + four), None

        end, _ = jax.lax.scan(step, batch["start"], jnp.arange(steps) / steps)
        return jnp.mean((end - batch["end"]) ** 2)

    return around(loss, optax.adam(1e-3), init, {"start": f32(batch, features), "end": f32(batch, features)})
