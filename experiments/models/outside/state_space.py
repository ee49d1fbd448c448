"""State-space model in equinox, trained with AdamW: complex diagonal states, an associative scan over time, gated."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 8, "states": 8, "layers": 1, "vocabulary": 32, "batch": 8, "length": 12}


class StateSpace(eqx.Module):
    decay: jax.Array
    angle: jax.Array
    into: eqx.nn.Linear
    out: eqx.nn.Linear
    gate: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, width: int, states: int, key: jax.Array):
        into, out, gate, decay = jax.random.split(key, 4)
        self.decay = jnp.log(jax.random.uniform(decay, (states,), minval=0.001, maxval=0.1))
        self.angle = jnp.linspace(0.0, 3.0, states)
        self.into, self.out = eqx.nn.Linear(width, 2 * states, key=into), eqx.nn.Linear(2 * states, width, key=out)
        self.gate, self.norm = eqx.nn.Linear(width, width, key=gate), eqx.nn.LayerNorm(width)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm)(x)
        real, imaginary = jnp.split(jax.vmap(self.into)(y), 2, -1)
        shrink = jnp.exp(-jnp.exp(self.decay))
        factor = jnp.stack([shrink * jnp.cos(self.angle), shrink * jnp.sin(self.angle)])
        factors = jnp.broadcast_to(factor[:, None], (2, *real.shape))

        def times(a, b):
            return jnp.stack([a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]])

        def after(first, then):
            return times(first[0], then[0]), times(then[0], first[1]) + then[1]

        _, states = jax.lax.associative_scan(after, (factors, jnp.stack([real, imaginary])), axis=1)
        y = jax.vmap(self.out)(jnp.concatenate([states[0], states[1]], -1))
        return x + jax.nn.gelu(y) * jax.nn.sigmoid(jax.vmap(self.gate)(y))


class Model(eqx.Module):
    embedding: jax.Array
    layers: list[StateSpace]
    head: eqx.nn.Linear

    def __init__(self, width: int, states: int, layers: int, vocabulary: int, key: jax.Array):
        embedding, head, *keys = jax.random.split(key, layers + 2)
        self.embedding = jax.random.normal(embedding, (vocabulary, width)) * 0.1
        self.layers = [StateSpace(width, states, k) for k in keys]
        self.head = eqx.nn.Linear(width, vocabulary, key=head)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x)
        return jax.vmap(self.head)(x)


def training(
    width: int = 512, states: int = 256, layers: int = 2, vocabulary: int = 512, batch: int = 32, length: int = 1024
) -> Training:
    def init(key: jax.Array) -> Model:
        return Model(width, states, layers, vocabulary, key)

    _, static = eqx.partition(eqx.filter_eval_shape(init, jax.random.key(0)), eqx.is_array_like)

    def loss(params, batch):
        return cross_entropy(jax.vmap(eqx.combine(params, static))(batch["tokens"]), batch["next"])

    tokens = i32(batch, length)
    return around(
        loss, optax.adamw(1e-3), lambda key: eqx.filter(init(key), eqx.is_array), {"tokens": tokens, "next": tokens}
    )
