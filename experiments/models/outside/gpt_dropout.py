"""GPT with dropout in flax linen, trained with AdamW: the random key is an input of the step, and each dropout draws
its own bits; tied logits."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {"layers": 1, "width": 32, "heads": 4, "vocabulary": 64, "length": 16, "batch": 8}

_KEPT = 0.9
"""The part of the features that a dropout leaves."""


class GptDropout(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array, key: jax.Array) -> jax.Array:
        keys = iter(jax.random.split(jax.random.wrap_key_data(key), 2 * self.layers + 1))

        def dropped(x: jax.Array) -> jax.Array:
            return jnp.where(jax.random.bernoulli(next(keys), _KEPT, x.shape), x / _KEPT, 0)

        length = tokens.shape[1]
        embedding = nn.Embed(self.vocabulary, self.width)
        x = dropped(embedding(tokens) + nn.Embed(length, self.width)(jnp.arange(length)))
        causal = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            y = nn.LayerNorm()(x)
            x = x + dropped(nn.MultiHeadDotProductAttention(self.heads)(y, y, mask=causal))
            x = x + dropped(nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))))
        return embedding.attend(nn.LayerNorm()(x))


def training(
    layers: int = 4, width: int = 512, heads: int = 8, vocabulary: int = 16_000, length: int = 256, batch: int = 32
) -> Training:
    tokens, key = i32(batch, length), jax.ShapeDtypeStruct((2,), jnp.uint32)

    def loss(logits, batch):
        return cross_entropy(logits, batch[1])

    return training_of(GptDropout(layers, width, heads, vocabulary), (tokens, key), tokens, loss)
