"""MLP-Mixer in flax linen, trained with SGD and momentum: matmuls over tokens and over channels in turn."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around


class Mlp(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(x.shape[-1], name="down")(nn.gelu(nn.Dense(self.hidden, name="up")(x)))


class Mixer(nn.Module):
    layers: int
    width: int
    tokens_hidden: int
    classes: int = 1000

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (16, 16), (16, 16))(image)
        x = x.reshape(x.shape[0], -1, self.width)
        for _ in range(self.layers):
            y = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
            x = x + jnp.swapaxes(Mlp(self.tokens_hidden)(y), 1, 2)
            x = x + Mlp(4 * self.width)(nn.LayerNorm()(x))
        return nn.Dense(self.classes, name="head")(nn.LayerNorm()(x).mean(axis=1))


def training(layers: int = 3, width: int = 1024, tokens_hidden: int = 512, batch: int = 512) -> Training:
    model = Mixer(layers, width, tokens_hidden)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["image"]), batch["label"])

    return around(
        loss,
        optax.sgd(0.1, momentum=0.9),
        lambda key: model.init(key, jnp.zeros((1, 224, 224, 3)))["params"],
        {"image": f32(batch, 224, 224, 3), "label": i32(batch)},
        {"*/up/kernel": 1, "*/down/kernel": 0},
    )
