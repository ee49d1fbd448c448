"""Transformer-XL in plain jax, trained with clipped Adam: a scan over layers, each of which attends to what it was
given for the segment before, with biases of relative positions that a reshape shifts into place."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_by

SMALL = {
    "layers": 2, "width": 32, "heads": 4, "head": 8, "inner": 64, "vocabulary": 64, "segment": 8, "memory": 8,
    "batch": 8,
}  # fmt: skip

Params = dict[str, Any]


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def _shift(scores: jax.Array) -> jax.Array:
    """[..., queries, distances from far to near] -> [..., queries, keys]."""
    *outer, queries, keys = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * (len(outer) + 1) + [(1, 0)])
    return padded.reshape(*outer, keys + 1, queries)[..., 1:, :].reshape(scores.shape)


def _positions(length: int, width: int) -> jax.Array:
    """Waves of the distances length - 1 to 0."""
    rates = 10_000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = jnp.arange(length - 1, -1, -1.0)[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def training(
    layers: int = 6, width: int = 410, heads: int = 10, head: int = 41, inner: int = 2100, vocabulary: int = 32_768,
    segment: int = 160, memory: int = 160, batch: int = 128,
) -> Training:  # fmt: skip
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.25), optax.adam(optax.warmup_cosine_decay_schedule(1e-6, 2.5e-4, 1000, 200_000))
    )

    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 8))

        def normal(*shape: int) -> jax.Array:
            return 0.02 * jax.random.normal(next(keys), shape)

        stack = {
            "q": normal(layers, width, heads, head),
            "kv": normal(layers, width, 2, heads, head),
            "r": normal(layers, width, heads, head),
            "out": normal(layers, heads, head, width),
            "up": normal(layers, width, inner),
            "down": normal(layers, inner, width),
            "norms": jnp.ones((layers, 2, width)),
        }
        biases = {"content": jnp.zeros((heads, head)), "position": jnp.zeros((heads, head))}
        return {"embed": normal(vocabulary, width), "stack": stack, "biases": biases}

    def block(biases: Params, x: jax.Array, layer: tuple[Params, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """What a layer makes of `x` and its memory, and what the next segment is to remember: what came in."""
        p, remembered = layer
        seen = jnp.concatenate([remembered, x], 1)
        q = jnp.einsum("btm,mhd->bthd", x, p["q"])
        k, v = jnp.einsum("btm,mchd->cbthd", seen, p["kv"])
        r = jnp.einsum("sm,mhd->shd", _positions(memory + segment, width), p["r"])
        content = jnp.einsum("bqhd,bkhd->bhqk", q + biases["content"], k)
        position = _shift(jnp.einsum("bqhd,shd->bhqs", q + biases["position"], r))
        past = jnp.arange(memory + segment) <= memory + jnp.arange(segment)[:, None]
        scores = jnp.where(past, (content + position) / math.sqrt(head), -1e30)
        y = jnp.einsum("bhqk,bkhd,hdm->bqm", jax.nn.softmax(scores), v, p["out"])
        y = _norm(x + y, p["norms"][0])
        y = _norm(y + jax.nn.relu(y @ p["up"]) @ p["down"], p["norms"][1])
        return y, jax.lax.stop_gradient(seen[:, -memory:])

    def loss(params: Params, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x = params["embed"][batch["tokens"]] * math.sqrt(width)
        x, memories = jax.lax.scan(
            lambda x, layer: block(params["biases"], x, layer), x, (params["stack"], batch["memory"])
        )
        return cross_entropy(x @ params["embed"].T, batch["next"]), memories

    def step(params: Params, opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, Any]:
        (value, memories), gradients = jax.value_and_grad(loss, has_aux=True)(params, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, (memories, value)

    def initial(key: jax.Array) -> tuple[Any, Any]:
        params = init(key)
        return params, optimizer.init(params)

    tokens = i32(batch, segment)
    inputs = {"tokens": tokens, "next": tokens, "memory": f32(layers, batch, memory, width)}
    return training_by(step, initial, inputs)
