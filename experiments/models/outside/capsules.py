"""Capsules with dynamic routing in plain jax, trained with Adam: a loss written for one image under vmap, of margins
between the lengths of capsules and of the image that the right one draws."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {
    "side": 20, "channels": 16, "capsules": 8, "classes": 8, "hidden": (32, 64), "batch": 8,
}  # fmt: skip

WINDOW, READ, WRITTEN = 9, 8, 16
"""Of both convolutions; and the dims of a capsule below and above."""

Params = dict[str, jax.Array]


def _conv(x: jax.Array, kernel: jax.Array, bias: jax.Array, stride: int) -> jax.Array:
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x[None], kernel, (stride, stride), "VALID", dimension_numbers=dims)[0] + bias


def _squash(v: jax.Array) -> jax.Array:
    square = jnp.sum(v * v, -1, keepdims=True)
    return square / (1 + square) * v * jax.lax.rsqrt(square + 1e-7)


def _routed(votes: jax.Array, times: int = 3) -> jax.Array:
    """votes [below, above, dims] -> [above, dims]: each capsule below sends to those above that agree with it."""
    fixed = jax.lax.stop_gradient(votes)

    def agree(_: int, logits: jax.Array) -> jax.Array:
        above = _squash(jnp.einsum("ij,ijd->jd", jax.nn.softmax(logits), fixed))
        return logits + jnp.einsum("ijd,jd->ij", fixed, above)

    logits = jax.lax.fori_loop(0, times - 1, agree, jnp.zeros(votes.shape[:2]))
    return _squash(jnp.einsum("ij,ijd->jd", jax.nn.softmax(logits), votes))


def _loss(params: Params, image: jax.Array, label: jax.Array) -> jax.Array:
    x = jax.nn.relu(_conv(image, params["conv"], params["conv_bias"], 1))
    x = _squash(_conv(x, params["primary"], params["primary_bias"], 2).reshape(-1, READ))
    above = _routed(jnp.einsum("id,ijde->ije", x, params["votes"]))
    classes = len(above)
    lengths = jnp.sqrt(jnp.sum(above**2, -1) + 1e-7)
    right = jax.nn.one_hot(label, classes)
    margin = right * jax.nn.relu(0.9 - lengths) ** 2 + 0.5 * (1 - right) * jax.nn.relu(lengths - 0.1) ** 2
    drawn = (above * right[:, None]).reshape(-1)
    for i in range(2):
        drawn = jax.nn.relu(drawn @ params[f"draw{i}"] + params[f"draw{i}_bias"])
    drawn = jax.nn.sigmoid(drawn @ params["draw2"] + params["draw2_bias"])
    return margin.sum() + 0.0005 * jnp.sum((drawn - image.reshape(-1)) ** 2)


def training(
    side: int = 28, channels: int = 256, capsules: int = 32, classes: int = 10, hidden: tuple[int, int] = (512, 1024),
    batch: int = 512,
) -> Training:  # fmt: skip
    inner = (side - 2 * (WINDOW - 1) - 1) // 2 + 1

    def init(key: jax.Array) -> Params:
        conv, primary, votes, *drawn = jax.random.split(key, 6)
        he = jax.nn.initializers.he_normal()
        sizes = (classes * WRITTEN, *hidden, side * side)
        params = {
            "conv": he(conv, (WINDOW, WINDOW, 1, channels)),
            "conv_bias": jnp.zeros(channels),
            "primary": he(primary, (WINDOW, WINDOW, channels, capsules * READ)),
            "primary_bias": jnp.zeros(capsules * READ),
            "votes": 0.05 * jax.random.normal(votes, (inner * inner * capsules, classes, READ, WRITTEN)),
        }
        for i, k in enumerate(drawn):
            params |= {f"draw{i}": he(k, (sizes[i], sizes[i + 1])), f"draw{i}_bias": jnp.zeros(sizes[i + 1])}
        return params

    def loss(params: Params, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jax.vmap(partial(_loss, params))(*batch).mean()

    optimizer = optax.adam(optax.exponential_decay(1e-3, 2000, 0.9))
    return around(loss, optimizer, init, (f32(batch, side, side, 1), i32(batch)))
