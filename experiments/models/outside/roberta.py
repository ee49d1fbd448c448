"""RoBERTa in flax linen, trained with clipped AdamW in bf16: norms after the residual sums, padding masked, and tied
logits for the masked tokens alone."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {
    "layers": 1, "width": 32, "heads": 4, "vocabulary": 64, "longest": 32, "length": 16, "masked": 4, "batch": 8,
}  # fmt: skip


class Roberta(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int
    longest: int
    dtype: DTypeLike = jnp.bfloat16
    """What is computed in; parameters are f32."""

    def _norm(self, x: jax.Array) -> jax.Array:
        return nn.LayerNorm(dtype=self.dtype)(x)

    def _dense(self, size: int) -> nn.Dense:
        return nn.Dense(size, dtype=self.dtype)

    @nn.compact
    def __call__(self, tokens: jax.Array, there: jax.Array, masked: jax.Array) -> jax.Array:
        """Logits [batch, masked, vocabulary].

        there    [batch, length]  1 for a token, 0 for padding
        masked   [batch, masked]  positions of the tokens to guess
        """
        embedding = nn.Embed(self.vocabulary, self.width, dtype=self.dtype)
        positions = nn.Embed(self.longest, self.width, dtype=self.dtype)
        x = self._norm(embedding(tokens) + positions(jnp.arange(tokens.shape[1])))
        mask = nn.make_attention_mask(there, there)
        for _ in range(self.layers):
            x = self._norm(x + nn.MultiHeadDotProductAttention(self.heads, dtype=self.dtype)(x, x, mask=mask))
            x = self._norm(x + self._dense(self.width)(nn.gelu(self._dense(4 * self.width)(x))))
        x = jnp.take_along_axis(x, masked[..., None], 1)
        x = self._norm(nn.gelu(self._dense(self.width)(x)))
        bias = self.param("bias", nn.initializers.zeros, (self.vocabulary,))
        return embedding.attend(x) + bias.astype(self.dtype)


def training(
    layers: int = 4,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50_265,
    longest: int = 512,
    length: int = 256,
    masked: int = 40,
    batch: int = 64,
) -> Training:
    guessed = i32(batch, masked)

    def loss(logits, batch):
        return cross_entropy(logits.astype(jnp.float32), batch[1])

    model = Roberta(layers, width, heads, vocabulary, longest)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return training_of(model, (i32(batch, length), f32(batch, length), guessed), guessed, loss, optimizer)
