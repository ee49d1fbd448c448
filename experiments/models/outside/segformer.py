"""SegFormer in flax linen, trained with AdamW: four stages whose attention sees a coarser image, depthwise convolutions
in the MLPs, and a decoder that resizes all stages to the first."""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"widths": (8, 16, 20, 32), "blocks": 1, "decoder": 16, "classes": 4, "batch": 8, "side": 32}


class Stage(NamedTuple):
    kernel: int
    stride: int
    coarser: int
    """Keys and values are of an image this much smaller."""
    heads: int


STAGES = (Stage(7, 4, 8, 1), Stage(3, 2, 4, 2), Stage(3, 2, 2, 5), Stage(3, 2, 1, 8))


class SegFormer(nn.Module):
    widths: tuple[int, ...]
    """Of each of `STAGES`."""
    blocks: int
    decoder: int
    classes: int

    def _attention(self, x: jax.Array, coarser: int, heads: int) -> jax.Array:
        batch, _, _, width = x.shape
        seen = x
        if coarser > 1:
            seen = nn.LayerNorm()(nn.Conv(width, (coarser, coarser), (coarser, coarser))(x))
        q, kv = x.reshape(batch, -1, width), seen.reshape(batch, -1, width)
        return nn.MultiHeadDotProductAttention(heads)(q, kv).reshape(x.shape)

    def _mlp(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        y = nn.Dense(4 * width)(x)
        y = nn.gelu(nn.Conv(4 * width, (3, 3), feature_group_count=4 * width)(y))
        return nn.Dense(width)(y)

    def _stage(self, x: jax.Array, width: int, stage: Stage) -> jax.Array:
        kernel, strides = (stage.kernel, stage.kernel), (stage.stride, stage.stride)
        x = nn.LayerNorm()(nn.Conv(width, kernel, strides)(x))
        for _ in range(self.blocks):
            x = x + self._attention(nn.LayerNorm()(x), stage.coarser, stage.heads)
            x = x + self._mlp(nn.LayerNorm()(x))
        return x

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x, features = image, []
        for width, stage in zip(self.widths, STAGES, strict=True):
            x = self._stage(x, width, stage)
            features.append(x)
        shape = (*features[0].shape[:3], self.decoder)
        resized = [jax.image.resize(nn.Dense(self.decoder)(x), shape, "bilinear") for x in features]
        y = nn.relu(nn.LayerNorm()(nn.Dense(self.decoder)(jnp.concatenate(resized, -1))))
        return nn.Conv(self.classes, (1, 1))(y)


def training(
    widths: tuple[int, ...] = (32, 64, 160, 256),
    blocks: int = 2,
    decoder: int = 128,
    classes: int = 20,
    batch: int = 32,
    side: int = 128,
) -> Training:
    def loss(logits, batch):
        return cross_entropy(logits, batch[1])

    labels = i32(batch, side // STAGES[0].stride, side // STAGES[0].stride)
    return training_of(SegFormer(widths, blocks, decoder, classes), (f32(batch, side, side, 3),), labels, loss)
