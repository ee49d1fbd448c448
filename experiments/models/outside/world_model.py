"""Recurrent state-space model of Dreamer in plain jax, trained with Adam: one scan of a GRU and categorical states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "groups": 2, "classes": 8, "batch": 8, "length": 6}

Params = dict[str, jax.Array]


def _norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def training(
    width: int = 1024, groups: int = 32, classes: int = 32, batch: int = 64, length: int = 64, actions: int = 8
) -> Training:
    state = groups * classes
    shapes = {
        "into": (state + actions, width), "gates": (2 * width, 3 * width), "prior": (width, state),
        "posterior": (2 * width, state), "decoder": (width + state, width),
    }  # fmt: skip

    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, len(shapes))
        return {
            name: jax.random.normal(k, shape) * shape[0] ** -0.5
            for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        def cell(carried, xs):
            h, z = carried
            seen, action, noise = xs
            x = jax.nn.silu(_norm(jnp.concatenate([z, action], -1) @ params["into"]))
            reset, update, new = jnp.split(jnp.concatenate([x, h], -1) @ params["gates"], 3, -1)
            update = jax.nn.sigmoid(update - 1)
            h = update * jnp.tanh(jax.nn.sigmoid(reset) * new) + (1 - update) * h
            shape = (len(h), groups, classes)
            prior = jax.nn.log_softmax((h @ params["prior"]).reshape(shape))
            posterior = (jnp.concatenate([h, seen], -1) @ params["posterior"]).reshape(shape)
            p = jax.nn.softmax(posterior)
            drawn = jax.nn.one_hot(jnp.argmax(posterior + noise.reshape(shape), -1), classes)
            z = (drawn + p - jax.lax.stop_gradient(p)).reshape(len(h), -1)
            apart = (p * (jax.nn.log_softmax(posterior) - prior)).sum((-1, -2)).mean()
            return (h, z), (jnp.concatenate([h, z], -1), apart)

        examples = batch["seen"].shape[1]
        start: Any = (jnp.zeros((examples, width)), jnp.zeros((examples, state)))
        _, (found, apart) = jax.lax.scan(cell, start, (batch["seen"], batch["action"], batch["noise"]))
        return jnp.mean((found @ params["decoder"] - batch["seen"]) ** 2) + apart.mean()

    return around(
        loss,
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
        init,
        {
            "seen": f32(length, batch, width),
            "action": f32(length, batch, actions),
            "noise": f32(length, batch, state),
        },
    )
