"""A small GPT in flax linen with bf16 arithmetic, trained with Muon: matrices get orthogonal updates (Newton-Schulz),
the embedding and the head Adam's; squared ReLU, normalised queries and keys, logits kept small."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from optax.contrib import MuonDimensionNumbers, muon

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {"layers": 2, "width": 32, "heads": 4, "vocabulary": 64, "length": 16, "batch": 8}


def _norm(x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def _rotary(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    rates = jnp.concatenate([(1 / 1024) ** jnp.linspace(0, 1, half // 2), jnp.zeros(half - half // 2)])
    angles = jnp.outer(jnp.arange(x.shape[1]), rates)[:, None]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    one, other = x[..., :half], x[..., half:]
    return jnp.concatenate([one * cos + other * sin, other * cos - one * sin], -1)


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, first: jax.Array) -> jax.Array:
        batch, length, width = x.shape

        def dense(features: int, name: str, zero: bool = False) -> nn.Dense:
            kernel = nn.initializers.zeros if zero else nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
            return nn.Dense(features, use_bias=False, dtype=jnp.bfloat16, kernel_init=kernel, name=name)

        mixes = self.param("mixes", lambda _: jnp.array([1.0, 0.0])).astype(x.dtype)
        x = mixes[0] * x + mixes[1] * first
        y = _norm(x)
        q, k, v = (dense(width, name)(y).reshape(batch, length, self.heads, -1) for name in ("q", "k", "v"))
        attended = jax.nn.dot_product_attention(_rotary(_norm(q)), _rotary(_norm(k)), v, is_causal=True)
        x = x + dense(width, "out", zero=True)(attended.reshape(x.shape))
        return x + dense(width, "down", zero=True)(nn.relu(dense(4 * width, "up")(_norm(x))) ** 2)


class Gpt(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = first = _norm(nn.Embed(self.vocabulary, self.width, dtype=jnp.bfloat16, name="embed")(tokens))
        for layer in range(self.layers):
            x = Block(self.heads, name=f"block_{layer}")(x, first)
        logits = nn.Dense(self.vocabulary, use_bias=False, dtype=jnp.bfloat16, name="head")(_norm(x))
        return 15.0 * jnp.tanh(logits.astype(jnp.float32) / 15.0)


def _matrices(params: Any) -> Any:
    """Which parameters Muon updates: the kernels of blocks."""

    def numbers(path: Any, leaf: jax.Array) -> MuonDimensionNumbers | None:
        of_block = path[0].key.startswith("block") and leaf.ndim == 2
        return MuonDimensionNumbers() if of_block else None

    return jax.tree_util.tree_map_with_path(numbers, params)


def training(
    layers: int = 4, width: int = 768, heads: int = 6, vocabulary: int = 50_304, length: int = 768, batch: int = 32
) -> Training:
    tokens = i32(batch, length)
    optimizer = muon(0.02, adam_learning_rate=3e-4, adam_b1=0.8, adam_b2=0.95, muon_weight_dimension_numbers=_matrices)
    model = Gpt(layers, width, heads, vocabulary)
    return training_of(model, (tokens,), tokens, lambda logits, batch: cross_entropy(logits, batch[1]), optimizer)
