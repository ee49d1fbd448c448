"""GPT-NeoX in flax linen, trained with AdamW: rotary positions, attention and perceptron side by side, in bfloat16."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {"layers": 2, "width": 32, "heads": 2, "vocabulary": 64, "length": 16, "batch": 8}


def rotated(x: jax.Array) -> jax.Array:
    """Rotary positions of x[batch, token, head, feature]: the two halves of the features are turned by the place."""
    length, features = x.shape[1], x.shape[3]
    angle = jnp.arange(length)[:, None] / (1e4 ** (jnp.arange(0, features, 2) / features))
    cosine, sine = jnp.cos(angle)[None, :, None], jnp.sin(angle)[None, :, None]
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1).astype(x.dtype)


class Neox(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int
    dtype: DTypeLike
    """What is computed in; parameters are f32."""

    def _attended(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        features = (self.heads, self.width // self.heads)
        query, key, value = (nn.DenseGeneral(features, dtype=self.dtype)(x) for _ in range(3))
        y = nn.dot_product_attention(rotated(query), rotated(key), value, mask=mask, dtype=self.dtype)
        return nn.DenseGeneral(self.width, axis=(-2, -1), dtype=self.dtype)(y)

    def _fed(self, x: jax.Array) -> jax.Array:
        down = nn.Dense(self.width, dtype=self.dtype)
        return down(nn.gelu(nn.Dense(4 * self.width, dtype=self.dtype)(x)))

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width, dtype=self.dtype)(tokens)
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            attended = self._attended(nn.LayerNorm(dtype=self.dtype)(x), mask)
            y = nn.LayerNorm(dtype=self.dtype)(x)
            x = x + attended + self._fed(y)
        x = nn.LayerNorm(dtype=self.dtype)(x)
        return nn.Dense(self.vocabulary, use_bias=False, dtype=self.dtype)(x)


def training(
    layers: int = 4, width: int = 768, heads: int = 12, vocabulary: int = 32_000, length: int = 512, batch: int = 32,
    dtype: DTypeLike = jnp.bfloat16,
) -> Training:  # fmt: skip
    model = Neox(layers=layers, width=width, heads=heads, vocabulary=vocabulary, dtype=dtype)
    tokens = i32(batch, length)
    return training_of(
        model, (tokens,), tokens, lambda logits, batch: cross_entropy(logits.astype(jnp.float32), batch[1])
    )
