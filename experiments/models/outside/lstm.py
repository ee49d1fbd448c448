"""LSTM language model in flax linen, trained with RMSProp: two layers of `nn.RNN`, a loop over time each."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around


class LstmModel(nn.Module):
    layers: int
    width: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width, name="embedding")(tokens)
        for _ in range(self.layers):
            x = nn.RNN(nn.OptimizedLSTMCell(self.width))(x)
        return nn.Dense(self.vocabulary, name="head")(x)


def training(
    layers: int = 2, width: int = 1024, vocabulary: int = 8192, length: int = 64, batch: int = 1024
) -> Training:
    model = LstmModel(layers, width, vocabulary)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["tokens"]), batch["next"])

    tokens = i32(batch, length)
    return around(
        loss,
        optax.rmsprop(1e-3, momentum=0.9),
        lambda key: model.init(key, jnp.zeros((1, length), jnp.int32))["params"],
        {"tokens": tokens, "next": tokens},
        {"head/kernel": 1, "head/bias": 0, "*embedding*": 1},
    )
