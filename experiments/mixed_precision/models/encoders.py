"""BERT, Whisper's encoder and an LSTM."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.mixed_precision.models.layers import BF16, MEGATRON, Mlp, Separate, dense, norm
from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class Bert(nn.Module):
    """Post-norm, three projections in flax's own attention, which computes the softmax in bf16; masked tokens."""

    layers: int = 2
    width: int = 768
    heads: int = 12
    vocabulary: int = 30_522

    @nn.compact
    def __call__(self, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        embed = nn.Embed(self.vocabulary, self.width, dtype=BF16, name="embedding")
        positions = nn.Embed(512, self.width, dtype=BF16, name="positions")(jnp.arange(tokens.shape[1]))
        x, seen = norm()(embed(tokens) + positions), nn.make_attention_mask(mask > 0, mask > 0)
        for _ in range(self.layers):
            x = norm()(x + nn.MultiHeadDotProductAttention(self.heads, dtype=BF16, name=None)(x, x, mask=seen))
            x = norm()(x + Mlp(4 * self.width)(x))
        return embed.attend(norm()(nn.gelu(dense(self.width, "transform")(x)))).astype(jnp.float32)


class Whisper(nn.Module):
    """Two convolutions over 3000 frames of 80, then encoder blocks over 1500 places with 8 heads of 64."""

    layers: int = 1
    width: int = 512
    heads: int = 8

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        x = nn.gelu(nn.Conv(self.width, (3,), dtype=BF16)(frames))
        x = nn.gelu(nn.Conv(self.width, (3,), (2,), dtype=BF16)(x))
        x = x + self.param("positions", nn.initializers.normal(0.02), (1500, self.width)).astype(BF16)
        for _ in range(self.layers):
            x = x + Separate(self.heads)(norm()(x))
            x = x + Mlp(4 * self.width)(norm()(x))
        return dense(1024, "head")(norm()(x).mean(axis=1)).astype(jnp.float32)


class Recurrent(nn.Module):
    """An LSTM of 1024 over 128 tokens."""

    width: int = 1024
    vocabulary: int = 16_384

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width, dtype=BF16, name="embedding")(tokens)
        x = nn.RNN(nn.OptimizedLSTMCell(self.width, dtype=BF16), name="lstm")(x)
        return dense(self.vocabulary, "head")(x).astype(jnp.float32)


def bert() -> Training:
    model, length = Bert(), 512

    def loss(params: Any, batch: Any) -> jax.Array:
        logits = model.apply(params, batch["tokens"], batch["mask"])
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
        return (each * batch["masked"]).sum() / batch["masked"].sum()

    tokens = i32(64, length)
    return around(
        loss,
        optax.adamw(1e-4),
        lambda key: model.init(key, jnp.zeros((1, length), jnp.int32), jnp.ones((1, length), jnp.int32)),
        {"tokens": tokens, "mask": tokens, "labels": tokens, "masked": f32(64, length)},
        {**MEGATRON, "*MultiHeadDotProductAttention*/out/kernel": 0},
    )


def whisper() -> Training:
    model = Whisper()

    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(model.apply(params, batch["frames"]), batch["label"])

    return around(
        loss,
        optax.adamw(1e-4),
        lambda key: model.init(key, jnp.zeros((1, 3000, 80))),
        {"frames": f32(32, 3000, 80), "label": i32(32)},
        MEGATRON,
    )


def lstm() -> Training:
    model = Recurrent()

    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(model.apply(params, batch["tokens"]), batch["next"])

    tokens = i32(256, 128)
    return around(
        loss,
        optax.adam(1e-3),
        lambda key: model.init(key, jnp.zeros((1, 128), jnp.int32)),
        {"tokens": tokens, "next": tokens},
        {"*Cell_0/*/kernel": 1, "*head/kernel": 1},
    )
