"""Vision transformer in flax linen, trained with AdamW: patches, learned positions, encoder blocks, mean pooling."""

from __future__ import annotations

import flax.linen as nn
import jax
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class EncoderBlock(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads, name="attention")(y, y)
        y = nn.gelu(nn.Dense(4 * width, name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(width, name="down")(y)


class ViT(nn.Module):
    layers: int
    width: int
    heads: int
    classes: int = 1000
    patch: int = 16

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (self.patch, self.patch), (self.patch, self.patch), padding="VALID")(image)
        x = x.reshape(x.shape[0], -1, self.width)
        x = x + self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        for _ in range(self.layers):
            x = EncoderBlock(self.heads)(x)
        return nn.Dense(self.classes, name="head")(nn.LayerNorm()(x).mean(axis=1))


MEGATRON = {
    "*/query/kernel": 1, "*/key/kernel": 1, "*/value/kernel": 1, "*/attention/out/kernel": 0,
    "*/up/kernel": 1, "*/down/kernel": 0,
}  # fmt: skip


def training(layers: int = 3, width: int = 1024, heads: int = 16, batch: int = 512, side: int = 224) -> Training:
    model = ViT(layers, width, heads)

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
