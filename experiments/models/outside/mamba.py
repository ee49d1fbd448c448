"""A Mamba-like model in equinox, trained with Lion: a causal convolution, then a state that each token chooses to keep.

    h[t] = exp(step[t] a) h[t-1] + step[t] b[t] x[t]          per channel and state, by an associative scan
    y[t] = c[t] . h[t] + skip x[t]                            step, b and c are made of the token itself

Sequences are written one at a time, and `vmap` maps over the batch.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around

TAPS = 4
"""Tokens that the convolution sees."""


def selected(decay: jax.Array, added: jax.Array) -> jax.Array:
    """h[t] = decay[t] h[t-1] + added[t], for all t at once; [tokens, channels, states]."""

    def then(first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return first[0] * second[0], first[1] * second[0] + second[1]

    return jax.lax.associative_scan(then, (decay, added))[1]


class Block(eqx.Module):
    norm: eqx.nn.RMSNorm
    into: eqx.nn.Linear
    taps: jax.Array
    choose: eqx.nn.Linear
    step: eqx.nn.Linear
    log_decay: jax.Array
    skip: jax.Array
    out: eqx.nn.Linear

    def __init__(self, width: int, states: int, key: jax.Array):
        keys, inner = jax.random.split(key, 5), 2 * width
        rank = max(1, width // 16)
        self.norm = eqx.nn.RMSNorm(width)
        self.into = eqx.nn.Linear(width, 2 * inner, use_bias=False, key=keys[0])
        self.taps = jax.random.normal(keys[1], (TAPS, inner)) * 0.3
        self.choose = eqx.nn.Linear(inner, rank + 2 * states, use_bias=False, key=keys[2])
        self.step = eqx.nn.Linear(rank, inner, key=keys[3])
        self.log_decay = jnp.log(jnp.tile(jnp.arange(1.0, states + 1), (inner, 1)))
        self.skip = jnp.ones(inner)
        self.out = eqx.nn.Linear(inner, width, use_bias=False, key=keys[4])

    def __call__(self, x: jax.Array) -> jax.Array:
        """[tokens, width] -> [tokens, width]."""
        states, rank = self.log_decay.shape[1], self.step.in_features
        u, gate = jnp.split(jax.vmap(self.into)(jax.vmap(self.norm)(x)), 2, axis=-1)
        padded = jnp.pad(u, ((TAPS - 1, 0), (0, 0)))
        u = jax.nn.silu(sum(padded[i : i + len(u)] * self.taps[i] for i in range(TAPS)))
        chosen = jax.vmap(self.choose)(u)
        step = jax.nn.softplus(jax.vmap(self.step)(chosen[:, :rank]))
        b, c = chosen[:, rank : rank + states], chosen[:, rank + states :]
        decay = jnp.exp(-step[:, :, None] * jnp.exp(self.log_decay))
        h = selected(decay, (step * u)[:, :, None] * b[:, None, :])
        y = jnp.einsum("tcs,ts->tc", h, c) + self.skip * u
        return x + jax.vmap(self.out)(y * jax.nn.silu(gate))


class Mamba(eqx.Module):
    embedding: jax.Array
    blocks: list[Block]
    norm: eqx.nn.RMSNorm

    def __init__(self, layers: int, width: int, states: int, vocabulary: int, key: jax.Array):
        first, *keys = jax.random.split(key, layers + 1)
        self.embedding = jax.random.normal(first, (vocabulary, width)) * 0.02
        self.blocks = [Block(width, states, k) for k in keys]
        self.norm = eqx.nn.RMSNorm(width)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.norm)(x) @ self.embedding.T


LION = optax.lion(1e-4)


def training(
    layers: int = 2,
    width: int = 512,
    states: int = 16,
    vocabulary: int = 8192,
    length: int = 256,
    batch: int = 32,
    optimizer: optax.GradientTransformation = LION,
) -> Training:
    static: Any = eqx.filter_eval_shape(Mamba, layers, width, states, vocabulary, jax.random.key(0))
    static = eqx.partition(static, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    def init(key):
        return eqx.filter(Mamba(layers, width, states, vocabulary, key), eqx.is_array)

    def loss(params, batch):
        return cross_entropy(jax.vmap(eqx.combine(params, static))(batch["tokens"]), batch["next"])

    tokens = i32(batch, length)
    channels = {"*taps": 1, "*choose/weight": 1, "*step/weight": 0, "*step/bias": 0, "*log_decay": 0, "*skip": 0}
    return around(
        loss,
        optimizer,
        init,
        {"tokens": tokens, "next": tokens},
        {**channels, "*out/weight": 1},
    )


SMALL = {
    "layers": 2,
    "width": 32,
    "states": 4,
    "vocabulary": 64,
    "length": 16,
    "batch": 8,
    "optimizer": optax.adam(1e-3, eps=1e-5),
}
"""Sizes that eight host devices run in seconds, and an optimizer that does not turn rounding into steps."""
