"""Energy-based model of images in plain jax, trained with Adam: samples of a buffer descend the energy for ten noisy
steps of a scan, and then the energy of images is pushed below theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, training_by

SMALL = {"widths": (8, 16, 16), "side": 16, "steps": 3, "batch": 8}

Params = dict[str, Any]


def _conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _energy(params: Params, image: jax.Array) -> jax.Array:
    """Of each of a batch."""
    x = _conv(image, params["begin"])
    for block in params["blocks"]:
        y = _conv(jax.nn.swish(x), block["first"]) + block["bias"]
        y = _conv(jax.nn.swish(y), block["second"]) * block["gain"]
        x = _conv(x, block["short"]) + y
        batch, height, wide, width = x.shape
        x = x.reshape(batch, height // 2, 2, wide // 2, 2, width).mean((2, 4))
    x = jax.nn.swish(x).sum((1, 2))
    return x @ params["out"]


def training(
    widths: Sequence[int] = (128, 256, 256), side: int = 32, steps: int = 10, rate: float = 10.0, batch: int = 128
) -> Training:
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-4, b1=0.0, b2=0.999))

    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 2 + 3 * len(widths)))

        def kernel(window: int, into: int, out: int) -> jax.Array:
            return jax.random.normal(next(keys), (window, window, into, out)) * (window * window * into) ** -0.5

        blocks, into = [], widths[0]
        for width in widths:
            first, second, short = kernel(3, into, width), kernel(3, width, width), kernel(1, into, width)
            blocks.append(
                {"first": first, "second": second, "short": short, "bias": jnp.zeros(width), "gain": jnp.ones(width)}
            )
            into = width
        out = jax.random.normal(next(keys), (into,)) * into**-0.5
        return {"begin": kernel(3, 3, widths[0]), "blocks": blocks, "out": out}

    def sampled(params: Params, image: jax.Array, key: jax.Array) -> jax.Array:
        """Langevin dynamics."""
        slope = jax.grad(lambda x: _energy(params, x).sum())

        def move(x: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            x = x + 0.005 * jax.random.normal(key, x.shape)
            x = x - rate * jnp.clip(slope(x), -0.01, 0.01)
            return jnp.clip(x, 0.0, 1.0), None

        return jax.lax.scan(move, image, jax.random.split(key, steps))[0]

    def loss(params: Params, image: jax.Array, sample: jax.Array) -> jax.Array:
        low, high = jnp.split(_energy(params, jnp.concatenate([image, sample])), 2)
        return low.mean() - high.mean() + 0.1 * jnp.mean(low**2 + high**2)

    def step(params: Params, opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, Any]:
        of_image, of_sample = jax.random.split(jax.random.wrap_key_data(batch["key"]))
        image = batch["image"] + 0.005 * jax.random.normal(of_image, batch["image"].shape)
        sample = sampled(params, batch["buffer"], of_sample)
        value, gradients = jax.value_and_grad(loss)(params, image, sample)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, (sample, value)

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = init(key)
        return params, optimizer.init(params)

    images = f32(batch, side, side, 3)
    inputs = {"image": images, "buffer": images, "key": jax.ShapeDtypeStruct((2,), jnp.uint32)}
    return training_by(step, initial, inputs)
