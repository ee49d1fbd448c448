"""Translation in plain jax, trained with Adam: a GRU reads, a GRU writes and attends to all that was read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "vocabulary": 64, "length": 6, "batch": 8}

Params = dict[str, Any]


def _dense(key: jax.Array, rows: int, columns: int) -> jax.Array:
    return jax.random.normal(key, (rows, columns)) * rows**-0.5


def _gru(params: Params, state: jax.Array, x: jax.Array) -> jax.Array:
    reset, update = jnp.split(jax.nn.sigmoid(jnp.concatenate([x, state], -1) @ params["gates"]), 2, -1)
    new = jnp.tanh(jnp.concatenate([x, reset * state], -1) @ params["new"])
    return update * state + (1 - update) * new


def training(width: int = 512, vocabulary: int = 8192, length: int = 48, batch: int = 256) -> Training:
    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 9))
        reads = {"gates": _dense(next(keys), 2 * width, 2 * width), "new": _dense(next(keys), 2 * width, width)}
        writes = {"gates": _dense(next(keys), 3 * width, 2 * width), "new": _dense(next(keys), 3 * width, width)}
        return {
            "source": jax.random.normal(next(keys), (vocabulary, width)) * 0.02,
            "target": jax.random.normal(next(keys), (vocabulary, width)) * 0.02,
            "reads": reads,
            "writes": writes,
            "query": _dense(next(keys), width, width),
            "head": _dense(next(keys), 2 * width, vocabulary),
        }

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        def read(state, x):
            state = _gru(params["reads"], state, x)
            return state, state

        def write(carried, x):
            state, context = carried
            state = _gru(params["writes"], state, jnp.concatenate([x, context], -1))
            scores = jnp.einsum("bd,tbd->bt", state @ params["query"], memory)
            context = jnp.einsum("bt,tbd->bd", jax.nn.softmax(scores), memory)
            return (state, context), jnp.concatenate([state, context], -1)

        nothing = jnp.zeros((batch["source"].shape[0], width))
        last, memory = jax.lax.scan(read, nothing, params["source"][batch["source"].T])
        _, written = jax.lax.scan(write, (last, nothing), params["target"][batch["target"].T])
        return cross_entropy(written @ params["head"], batch["next"].T)

    tokens = i32(batch, length)
    return around(loss, optax.adam(1e-3), init, {"source": tokens, "target": tokens, "next": tokens})
