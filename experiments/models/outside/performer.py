"""Linear attention, as Performer, in flax linen, trained with AdamW behind gradient clipping: no table of all pairs."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {
    "layers": 2, "width": 32, "heads": 2, "hidden": 64, "vocabulary": 64, "classes": 8, "length": 16, "batch": 8,
}  # fmt: skip


class Performer(nn.Module):
    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    classes: int

    def _attended(self, x: jax.Array) -> jax.Array:
        features = (self.heads, self.width // self.heads)
        query, key, value = (nn.DenseGeneral(features)(x) for _ in range(3))
        query, key = nn.elu(query) + 1, nn.elu(key) + 1
        summed = jnp.einsum("bthd,bthe->bhde", key, value)
        scale = 1 / (jnp.einsum("bthd,bhd->bth", query, key.sum(1)) + 1e-6)
        return nn.DenseGeneral(self.width, axis=(-2, -1))(jnp.einsum("bthd,bhde,bth->bthe", query, summed, scale))

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for _ in range(self.layers):
            x = x + self._attended(nn.LayerNorm()(x))
            up, gate = jnp.split(nn.Dense(2 * self.hidden)(nn.LayerNorm()(x)), 2, -1)
            x = x + nn.Dense(self.width)(nn.silu(gate) * up)
        return nn.Dense(self.classes)(nn.LayerNorm()(x).mean(1))


def training(
    layers: int = 3, width: int = 512, heads: int = 8, hidden: int = 2048, vocabulary: int = 8000, classes: int = 20,
    length: int = 1024, batch: int = 64,
) -> Training:  # fmt: skip
    return training_of(
        Performer(layers=layers, width=width, heads=heads, hidden=hidden, vocabulary=vocabulary, classes=classes),
        (i32(batch, length),),
        i32(batch),
        lambda logits, batch: cross_entropy(logits, batch[1]),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
    )
