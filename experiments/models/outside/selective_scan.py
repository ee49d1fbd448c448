"""A selective state-space model (Mamba) in flax linen, trained with AdamW: each token chooses what the states keep, and
an associative scan makes the states of all tokens at once."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {"layers": 1, "width": 16, "states": 4, "rank": 4, "vocabulary": 64, "length": 16, "batch": 8}

_TAPS = 4
"""Tokens that the convolution sees."""


def _states(decay: jax.Array, added: jax.Array) -> jax.Array:
    """h[t] = decay[t] h[t-1] + added[t], for all t at once; [batch, tokens, channels, states]."""

    def then(first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    return jax.lax.associative_scan(then, (decay, added), axis=1)[1]


class SelectiveScan(nn.Module):
    layers: int
    width: int
    states: int
    rank: int
    vocabulary: int

    def _scanned(self, u: jax.Array, layer: int) -> jax.Array:
        """y[t] = C[t] . h[t] + D u[t], of h[t] = exp(step[t] A) h[t-1] + step[t] B[t] u[t] per channel and state."""
        inner = u.shape[-1]
        b, c = nn.Dense(self.states)(u), nn.Dense(self.states)(u)
        step = nn.softplus(nn.Dense(inner)(nn.Dense(self.rank)(u)))
        a = -jnp.exp(self.param(f"A_{layer}", nn.initializers.normal(0.1), (inner, self.states)))
        h = _states(jnp.exp(step[..., None] * a), (step * u)[..., None] * b[:, :, None])
        return jnp.einsum("bten,btn->bte", h, c) + u * self.param(f"D_{layer}", nn.initializers.ones, (inner,))

    def _layer(self, x: jax.Array, layer: int) -> jax.Array:
        inner = 2 * self.width
        u, gate = jnp.split(nn.Dense(2 * inner, use_bias=False)(nn.RMSNorm()(x)), 2, -1)
        u = nn.silu(nn.Conv(inner, (_TAPS,), padding=[(_TAPS - 1, 0)], feature_group_count=inner)(u))
        y = self._scanned(u, layer)
        return x + nn.Dense(self.width, use_bias=False)(y * nn.silu(gate))

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for layer in range(self.layers):
            x = self._layer(x, layer)
        return nn.Dense(self.vocabulary)(nn.RMSNorm()(x))


def training(
    layers: int = 3,
    width: int = 256,
    states: int = 8,
    rank: int = 16,
    vocabulary: int = 8192,
    length: int = 256,
    batch: int = 32,
) -> Training:
    tokens = i32(batch, length)

    def loss(logits, batch):
        return cross_entropy(logits, batch[1])

    return training_of(SelectiveScan(layers, width, states, rank, vocabulary), (tokens,), tokens, loss)
