"""A Qwen-like decoder in flax linen, trained with clipped AdamW in bf16: queries and keys are normed before they are
rotated, queries share keys and values, logits are tied; one scan over rematerialised blocks."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from experiments.models.outside.neox import rotated
from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {
    "layers": 2, "width": 32, "heads": 4, "shared": 2, "hidden": 64, "vocabulary": 64, "length": 16, "batch": 8,
}  # fmt: skip


class QwenBlock(nn.Module):
    heads: int
    shared: int
    hidden: int
    dtype: DTypeLike = jnp.bfloat16

    def _dense(self, size: int) -> nn.Dense:
        return nn.Dense(size, use_bias=False, dtype=self.dtype)

    def _attention(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        head, groups = width // self.heads, self.heads // self.shared
        y = nn.RMSNorm(dtype=self.dtype)(x)
        q = nn.DenseGeneral((self.heads, head), dtype=self.dtype)(y)
        k = nn.DenseGeneral((self.shared, head), dtype=self.dtype)(y)
        v = nn.DenseGeneral((self.shared, head), dtype=self.dtype)(y)
        q = rotated(nn.RMSNorm(dtype=self.dtype)(q))
        k = rotated(nn.RMSNorm(dtype=self.dtype)(k))
        k, v = jnp.repeat(k, groups, 2), jnp.repeat(v, groups, 2)
        causal = nn.make_causal_mask(x[..., 0])
        mixed = nn.dot_product_attention(q, k, v, mask=causal, dtype=self.dtype)
        return nn.DenseGeneral(width, axis=(-2, -1), use_bias=False, dtype=self.dtype)(mixed)

    @nn.compact
    def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, None]:
        x = x + self._attention(x)
        y = nn.RMSNorm(dtype=self.dtype)(x)
        down = self._dense(x.shape[-1])
        return x + down(nn.silu(self._dense(self.hidden)(y)) * self._dense(self.hidden)(y)), None


class Qwen(nn.Module):
    layers: int
    width: int
    heads: int
    shared: int
    hidden: int
    vocabulary: int
    dtype: DTypeLike = jnp.bfloat16
    """What is computed in; parameters are f32."""

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embedding = nn.Embed(self.vocabulary, self.width, dtype=self.dtype)
        x = embedding(tokens)
        blocks = nn.scan(
            nn.remat(QwenBlock, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.layers,
        )(self.heads, self.shared, self.hidden, self.dtype, name="blocks")
        x, _ = blocks(x, None)
        return embedding.attend(nn.RMSNorm(dtype=self.dtype)(x))


def training(
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    shared: int = 2,
    hidden: int = 1536,
    vocabulary: int = 32_000,
    length: int = 512,
    batch: int = 32,
) -> Training:
    tokens = i32(batch, length)

    def loss(logits, batch):
        return cross_entropy(logits.astype(jnp.float32), batch[1])

    model = Qwen(layers, width, heads, shared, hidden, vocabulary)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return training_of(model, (tokens,), tokens, loss, optimizer)
