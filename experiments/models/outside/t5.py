"""T5 in flax linen, trained with Adafactor in bf16: an encoder and a decoder whose positions are a learned bias of the
attention; RMSNorm, gated MLPs, no bias in any dense layer."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {
    "layers": 1, "width": 32, "heads": 4, "hidden": 64, "vocabulary": 64, "read": 16, "written": 8, "batch": 8,
}  # fmt: skip

_FAR = 16
"""Tokens further away than this share a bias."""


class T5(nn.Module):
    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    dtype: DTypeLike = jnp.bfloat16
    """What is computed in; parameters are f32."""

    def _dense(self, size: int) -> nn.Dense:
        return nn.Dense(size, use_bias=False, dtype=self.dtype)

    def _norm(self, x: jax.Array) -> jax.Array:
        return nn.RMSNorm(dtype=self.dtype)(x)

    def _distance_bias(self, length: int, name: str, causal: bool) -> jax.Array:
        """[1, heads, length, length]."""
        distance = jnp.arange(length)[None] - jnp.arange(length)[:, None]
        bucket = jnp.clip(distance, -_FAR, _FAR - 1) + _FAR
        bias = nn.Embed(2 * _FAR, self.heads, name=name)(bucket).transpose(2, 0, 1)[None]
        if not causal:
            return bias
        return bias + jnp.where(jnp.tril(jnp.ones((length, length))), 0.0, -1e9)[None, None]

    def _attention(self, x: jax.Array, seen: jax.Array, bias: jax.Array | None) -> jax.Array:
        def projected(x: jax.Array) -> jax.Array:
            return nn.DenseGeneral((self.heads, self.width // self.heads), use_bias=False, dtype=self.dtype)(x)

        mixed = nn.dot_product_attention(projected(x), projected(seen), projected(seen), bias=bias, dtype=self.dtype)
        return nn.DenseGeneral(self.width, axis=(-2, -1), use_bias=False, dtype=self.dtype)(mixed)

    def _mlp(self, x: jax.Array) -> jax.Array:
        return self._dense(self.width)(nn.gelu(self._dense(self.hidden)(x)) * self._dense(self.hidden)(x))

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        embedding = nn.Embed(self.vocabulary, self.width, dtype=self.dtype)
        x = embedding(source)
        bias = self._distance_bias(source.shape[1], "encoder_bias", causal=False)
        for _ in range(self.layers):
            normed = self._norm(x)
            x = x + self._attention(normed, normed, bias)
            x = x + self._mlp(self._norm(x))
        x = self._norm(x)
        y = embedding(target)
        bias = self._distance_bias(target.shape[1], "decoder_bias", causal=True)
        for _ in range(self.layers):
            normed = self._norm(y)
            y = y + self._attention(normed, normed, bias)
            y = y + self._attention(self._norm(y), x, None)
            y = y + self._mlp(self._norm(y))
        return self._dense(self.vocabulary)(self._norm(y))


def training(
    layers: int = 4,
    width: int = 512,
    heads: int = 8,
    hidden: int = 1024,
    vocabulary: int = 32_128,
    read: int = 512,
    written: int = 128,
    batch: int = 32,
) -> Training:
    target = i32(batch, written)

    def loss(logits, batch):
        return cross_entropy(logits.astype(jnp.float32), batch[1])

    model = T5(layers, width, heads, hidden, vocabulary)
    return training_of(model, (i32(batch, read), target), target, loss, optax.adafactor(1e-3))
