"""wav2vec 2.0 in flax linen, trained with AdamW: strided convolutions over a wave, a grouped one, a transformer."""

from __future__ import annotations

import math

import flax.linen as nn
import jax

from experiments.models.outside.training import Training, cross_entropy, f32, i32, training_of

SMALL = {"channels": 16, "width": 32, "heads": 4, "layers": 2, "letters": 64, "batch": 8, "samples": 640}

WINDOWS = ((10, 5), (3, 2), (3, 2), (3, 2), (2, 2))
"""Window and stride of each convolution over the wave."""


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width = x.shape[-1]
        x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x))
        return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x))))


class Wav2Vec(nn.Module):
    channels: int
    width: int
    heads: int
    layers: int
    letters: int

    @nn.compact
    def __call__(self, wave: jax.Array) -> jax.Array:
        x = wave
        for window, stride in WINDOWS:
            x = nn.Conv(self.channels, (window,), strides=stride, use_bias=False)(x)
            x = nn.gelu(nn.LayerNorm()(x))
        x = nn.Dense(self.width)(nn.LayerNorm()(x))
        x = x + nn.gelu(nn.Conv(self.width, (31,), feature_group_count=16)(x))
        for _ in range(self.layers):
            x = Block(self.heads)(x)
        return nn.Dense(self.letters)(x)


def training(
    channels: int = 256, width: int = 512, heads: int = 8, layers: int = 3, letters: int = 32, batch: int = 64,
    samples: int = 16_000,
) -> Training:  # fmt: skip
    frames = samples // math.prod(stride for _, stride in WINDOWS)
    return training_of(
        Wav2Vec(channels, width, heads, layers, letters),
        (f32(batch, samples, 1),),
        i32(batch, frames),
        lambda logits, batch: cross_entropy(logits, batch[1]),
    )
