"""Language model over words in flax linen, trained with AdamW: two LSTM layers as `nn.RNN`, a loop over time each."""

from __future__ import annotations

import flax.linen as nn
import jax

from experiments.models.outside.training import Training, cross_entropy, i32, training_of

SMALL = {"layers": 2, "width": 16, "vocabulary": 64, "length": 8, "batch": 8}


class WordLstm(nn.Module):
    layers: int
    width: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for _ in range(self.layers):
            x = nn.RNN(nn.OptimizedLSTMCell(self.width))(x)
        return nn.Dense(self.vocabulary)(x)


def training(
    layers: int = 2, width: int = 512, vocabulary: int = 10_000, length: int = 64, batch: int = 128
) -> Training:
    tokens = i32(batch, length)
    return training_of(
        WordLstm(layers=layers, width=width, vocabulary=vocabulary),
        (tokens,),
        tokens,
        lambda logits, batch: cross_entropy(logits, batch[1]),
    )
