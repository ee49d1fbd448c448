"""A GAN of strided and transposed convolutions (DCGAN) in plain jax: two players, two losses, two Adams in one step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, training_by

SMALL = {"widths": (32, 16, 8, 8), "noise": 16, "batch": 8}
_DIMS = ("NHWC", "HWIO", "NHWC")

Params = Mapping[str, jax.Array]


def _normalized(x: jax.Array, p: Params, layer: int) -> jax.Array:
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[f"scale{layer}"] + p[f"shift{layer}"]


def _layers(key: jax.Array, widths: Sequence[int]) -> dict[str, jax.Array]:
    layers: dict[str, jax.Array] = {}
    for i, (read, written) in enumerate(itertools.pairwise(widths)):
        layers[f"kernel{i}"] = 0.05 * jax.random.normal(jax.random.fold_in(key, i), (4, 4, read, written))
    return layers


def _initial(key: jax.Array, widths: Sequence[int], noise: int) -> dict[str, Any]:
    makes, judges = jax.random.split(key)
    inner = 4 * 4 * widths[0]
    generator = _layers(makes, (*widths, 3)) | {"in": 0.05 * jax.random.normal(makes, (noise, inner))}
    critic = _layers(judges, (3, *widths[::-1])) | {"out": 0.05 * jax.random.normal(judges, (inner, 1))}
    for i, width in enumerate(widths):
        generator |= {f"scale{i}": jnp.ones(width), f"shift{i}": jnp.zeros(width)}
    for i, width in enumerate(widths[-2::-1], start=1):
        critic |= {f"scale{i}": jnp.ones(width), f"shift{i}": jnp.zeros(width)}
    return {"generator": generator, "critic": critic}


def _made(p: Params, noise: jax.Array, widths: Sequence[int]) -> jax.Array:
    x = (noise @ p["in"]).reshape(-1, 4, 4, widths[0])
    for i in range(len(widths)):
        x = jax.nn.relu(_normalized(x, p, i))
        x = jax.lax.conv_transpose(x, p[f"kernel{i}"], (2, 2), "SAME", dimension_numbers=_DIMS)
    return jnp.tanh(x)


def _judged(p: Params, x: jax.Array, layers: int) -> jax.Array:
    for i in range(layers):
        x = jax.lax.conv_general_dilated(x, p[f"kernel{i}"], (2, 2), "SAME", dimension_numbers=_DIMS)
        x = jax.nn.leaky_relu(x if i == 0 else _normalized(x, p, i), 0.2)
    return x.reshape(len(x), -1) @ p["out"]


def training(widths: Sequence[int] = (512, 256, 128, 64), noise: int = 128, batch: int = 256) -> Training:
    optimizers = {"generator": optax.adam(2e-4, b1=0.5), "critic": optax.adam(2e-4, b1=0.5)}

    def fools(generator: Params, critic: Params, batch: Any) -> jax.Array:
        return jax.nn.softplus(-_judged(critic, _made(generator, batch["noise"], widths), len(widths))).mean()

    def judges(critic: Params, generator: Params, batch: Any) -> jax.Array:
        made = _judged(critic, _made(generator, batch["noise"], widths), len(widths))
        return jax.nn.softplus(made).mean() + jax.nn.softplus(-_judged(critic, batch["image"], len(widths))).mean()

    def step(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        critic_loss, critic = jax.value_and_grad(judges)(params["critic"], params["generator"], batch)
        loss, generator = jax.value_and_grad(fools)(params["generator"], params["critic"], batch)
        new_params, new_state = {}, {}
        for player, gradients in (("generator", generator), ("critic", critic)):
            updates, new_state[player] = optimizers[player].update(gradients, opt_state[player])
            new_params[player] = optax.apply_updates(params[player], updates)
        return new_params, new_state, critic_loss + loss

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = _initial(key, widths, noise)
        return params, {player: optimizers[player].init(params[player]) for player in optimizers}

    side = 4 * 2 ** len(widths)
    return training_by(step, initial, {"image": f32(batch, side, side, 3), "noise": f32(batch, noise)})
