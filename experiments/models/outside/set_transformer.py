"""Set Transformer in flax linen, trained with AdamW: points attend to a few inducing points, seeds pool them."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "heads": 2, "inducing": 4, "batch": 8, "points": 8}


class Attend(nn.Module):
    """Of `x` to `y`, with a perceptron behind."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x = nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(self.heads)(x, y))
        return nn.LayerNorm()(x + nn.relu(nn.Dense(x.shape[-1])(x)))


class SetTransformer(nn.Module):
    width: int
    heads: int
    inducing: int
    classes: int = 40

    def points(self, name: str, count: int, batch: int) -> jax.Array:
        learned = self.param(name, nn.initializers.xavier_uniform(), (count, self.width))
        return jnp.broadcast_to(learned, (batch, count, self.width))

    @nn.compact
    def __call__(self, points: jax.Array) -> jax.Array:
        x = nn.Dense(self.width)(points)
        for layer in range(2):
            few = Attend(self.heads)(self.points(f"inducing_{layer}", self.inducing, len(x)), x)
            x = Attend(self.heads)(x, few)
        pooled = Attend(self.heads)(self.points("seeds", 4, len(x)), x)
        return nn.Dense(self.classes)(Attend(self.heads)(pooled, pooled).reshape(len(x), -1))


def training(width: int = 256, heads: int = 4, inducing: int = 32, batch: int = 256, points: int = 512) -> Training:
    model = SetTransformer(width, heads, inducing)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["points"]), batch["label"])

    return around(
        loss,
        optax.adamw(1e-3),
        lambda key: model.init(key, jnp.zeros((1, points, 3)))["params"],
        {"points": f32(batch, points, 3), "label": i32(batch)},
    )
