"""Vision transformer in flax linen, trained with AdamW: patches, learned positions, encoder blocks, mean pooling."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class EncoderBlock(nn.Module):
    heads: int
    dtype: Any = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        y = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, dtype=self.dtype, name="attention")(y, y)
        y = nn.gelu(nn.Dense(4 * width, dtype=self.dtype, name="up")(nn.LayerNorm(dtype=self.dtype)(x)))
        return x + nn.Dense(width, dtype=self.dtype, name="down")(y)


class ViT(nn.Module):
    layers: int
    width: int
    heads: int
    classes: int = 1000
    patch: int = 16
    dtype: Any = None
    """What is computed in; parameters are f32."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        patch = (self.patch, self.patch)
        x = nn.Conv(self.width, patch, patch, padding="VALID", dtype=self.dtype)(image)
        x = x.reshape(x.shape[0], -1, self.width)
        positions = self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        x = x + positions.astype(x.dtype)
        for _ in range(self.layers):
            x = EncoderBlock(self.heads, self.dtype)(x)
        pooled = nn.LayerNorm(dtype=self.dtype)(x).mean(axis=1)
        return nn.Dense(self.classes, dtype=self.dtype, name="head")(pooled)


MEGATRON = {
    "*/query/kernel": 1, "*/key/kernel": 1, "*/value/kernel": 1, "*/attention/out/kernel": 0,
    "*/up/kernel": 1, "*/down/kernel": 0,
}  # fmt: skip


def training(
    layers: int = 3, width: int = 1024, heads: int = 16, batch: int = 512, side: int = 224, dtype: Any = None
) -> Training:
    model = ViT(layers, width, heads, dtype=dtype)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["image"]), batch["label"])

    images = f32(batch, side, side, 3)
    return around(
        loss,
        optax.adamw(1e-3),
        lambda key: model.init(key, jax.numpy.zeros((1, side, side, 3)))["params"],
        {"image": images, "label": i32(batch)},
        MEGATRON,
    )
