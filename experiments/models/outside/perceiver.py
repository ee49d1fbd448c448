"""Perceiver in flax linen, trained with AdamW: a few latents read a long array once, and attend to themselves."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "latents": 4, "layers": 1, "batch": 8, "places": 32}


class Read(nn.Module):
    """Attention of `x` to `y`, both normed, and a perceptron of one hidden layer."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x), nn.LayerNorm()(y))
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))))


class Perceiver(nn.Module):
    width: int
    latents: int
    layers: int
    classes: int = 1000

    @nn.compact
    def __call__(self, array: jax.Array) -> jax.Array:
        learned = self.param("latents", nn.initializers.normal(0.02), (self.latents, self.width))
        x = jnp.broadcast_to(learned, (len(array), *learned.shape))
        x = Read(1)(x, nn.Dense(self.width // 2)(array))
        for _ in range(self.layers):
            x = Read(self.width // 64 or 1)(x, x)
        return nn.Dense(self.classes)(x.mean(1))


def training(width: int = 512, latents: int = 128, layers: int = 4, batch: int = 64, places: int = 4096) -> Training:
    model = Perceiver(width, latents, layers)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["array"]), batch["label"])

    return around(
        loss,
        optax.adamw(1e-3),
        lambda key: model.init(key, jnp.zeros((1, places, 64)))["params"],
        {"array": f32(batch, places, 64), "label": i32(batch)},
    )
