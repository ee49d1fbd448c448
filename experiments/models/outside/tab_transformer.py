"""Transformer over the columns of a table in flax linen, trained with AdamW: many short sequences of narrow tokens."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, i32
from experiments.models.outside.training import training as around

SMALL = {"width": 16, "heads": 2, "layers": 1, "numbers": 4, "categories": 3, "levels": 8, "batch": 16}


class TabTransformer(nn.Module):
    width: int
    heads: int
    layers: int
    levels: int

    @nn.compact
    def __call__(self, numbers: jax.Array, categories: jax.Array) -> jax.Array:
        scales = self.param("scales", nn.initializers.normal(0.1), (numbers.shape[1], self.width))
        offsets = self.param("offsets", nn.initializers.normal(0.1), (numbers.shape[1], self.width))
        of_numbers = numbers[..., None] * scales + offsets
        first = self.levels * jnp.arange(categories.shape[1])
        of_categories = nn.Embed(self.levels * categories.shape[1], self.width)(categories + first)
        whole = jnp.broadcast_to(
            self.param("whole", nn.initializers.zeros, (1, self.width)), (len(numbers), 1, self.width)
        )
        x = jnp.concatenate([whole, of_numbers, of_categories], 1)
        for _ in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x))
            gate, h = jnp.split(nn.Dense(4 * self.width)(nn.LayerNorm()(x)), 2, -1)
            x = x + nn.Dense(self.width)(nn.relu(gate) * h)
        return nn.Dense(1)(nn.relu(nn.LayerNorm()(x[:, 0])))[:, 0]


def training(
    width: int = 192, heads: int = 8, layers: int = 3, numbers: int = 20, categories: int = 11, levels: int = 100,
    batch: int = 4096,
) -> Training:  # fmt: skip
    model = TabTransformer(width, heads, layers, levels)

    def loss(params, batch):
        logits = model.apply({"params": params}, batch["numbers"], batch["categories"])
        return optax.sigmoid_binary_cross_entropy(logits, batch["bought"]).mean()

    return around(
        loss,
        optax.adamw(1e-4),
        lambda key: model.init(key, jnp.zeros((1, numbers)), jnp.zeros((1, categories), jnp.int32))["params"],
        {"numbers": f32(batch, numbers), "categories": i32(batch, categories), "bought": f32(batch)},
    )
