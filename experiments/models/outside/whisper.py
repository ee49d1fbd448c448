"""Whisper in flax linen, trained with AdamW: convolutions over a spectrogram, an encoder, a decoder, tied logits."""

from __future__ import annotations

import flax.linen as nn
import jax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {
    "layers": 2, "width": 32, "heads": 2, "vocabulary": 64, "frames": 32, "bands": 8, "length": 16, "batch": 8,
}  # fmt: skip


class Whisper(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int

    def _placed(self, name: str, x: jax.Array) -> jax.Array:
        return x + self.param(name, nn.initializers.normal(), (x.shape[1], self.width))

    def _attended(self, x: jax.Array, read: jax.Array | None = None, mask: jax.Array | None = None) -> jax.Array:
        return x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x), read, mask=mask)

    def _fed(self, x: jax.Array) -> jax.Array:
        down = nn.Dense(self.width)
        return x + down(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))

    @nn.compact
    def __call__(self, sound: jax.Array, tokens: jax.Array) -> jax.Array:
        x = nn.gelu(nn.Conv(self.width, (3,))(sound))
        x = nn.gelu(nn.Conv(self.width, (3,), strides=2)(x))
        x = self._placed("encoder_positions", x)
        for _ in range(self.layers):
            x = self._fed(self._attended(x))
        heard = nn.LayerNorm()(x)
        embedding = nn.Embed(self.vocabulary, self.width)
        y = self._placed("decoder_positions", embedding(tokens))
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            y = self._attended(y, mask=mask)
            y = self._fed(self._attended(y, heard))
        return embedding.attend(nn.LayerNorm()(y))


def training(
    layers: int = 3, width: int = 512, heads: int = 8, vocabulary: int = 16_000, frames: int = 1024, bands: int = 80,
    length: int = 128, batch: int = 32,
) -> Training:  # fmt: skip
    model = Whisper(layers=layers, width=width, heads=heads, vocabulary=vocabulary)
    tokens = i32(batch, length)
    return training_of(
        model, (f32(batch, frames, bands), tokens), tokens, lambda logits, batch: cross_entropy(logits, batch[1])
    )
