"""A diffusion transformer (DiT) in flax linen, trained with AdamW in bf16: what the noise and the class say sets the
scale, the shift and the gate of each part of each block."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from experiments.models.outside.training import Training, f32, i32, training_of

SMALL = {"layers": 1, "width": 32, "heads": 2, "classes": 16, "batch": 8, "side": 8}

_FREQUENCIES = 128
_PATCH = 2


class DiffusionTransformer(nn.Module):
    layers: int
    width: int
    heads: int
    classes: int
    dtype: DTypeLike = jnp.bfloat16
    """What is computed in; parameters are f32."""

    def _condition(self, time: jax.Array, label: jax.Array) -> jax.Array:
        """[batch, width], of the time in the diffusion and the class."""
        frequencies = jnp.exp(-math.log(1e4) * jnp.arange(_FREQUENCIES) / _FREQUENCIES)
        angles = time[:, None] * frequencies
        waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1)
        hidden = nn.Dense(self.width, dtype=self.dtype)(nn.silu(nn.Dense(self.width, dtype=self.dtype)(waves)))
        return hidden + nn.Embed(self.classes, self.width, dtype=self.dtype)(label)

    def _modulation(self, condition: jax.Array, parts: int) -> list[jax.Array]:
        made = nn.Dense(parts * self.width, dtype=self.dtype)(nn.silu(condition))
        return jnp.split(made[:, None], parts, -1)

    def _modulated(self, x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
        norm = nn.LayerNorm(use_bias=False, use_scale=False, dtype=self.dtype)
        return norm(x) * (1 + scale) + shift

    def _block(self, x: jax.Array, condition: jax.Array) -> jax.Array:
        scale, shift, gate, mlp_scale, mlp_shift, mlp_gate = self._modulation(condition, 6)
        y = self._modulated(x, scale, shift)
        x = x + gate * nn.MultiHeadDotProductAttention(self.heads, dtype=self.dtype)(y, y)
        y = self._modulated(x, mlp_scale, mlp_shift)
        down = nn.Dense(self.width, dtype=self.dtype)
        return x + mlp_gate * down(nn.gelu(nn.Dense(4 * self.width, dtype=self.dtype)(y)))

    @nn.compact
    def __call__(self, latent: jax.Array, time: jax.Array, label: jax.Array) -> jax.Array:
        batch, height, width, channels = latent.shape
        rows, columns, patch = height // _PATCH, width // _PATCH, (_PATCH, _PATCH)
        x = nn.Conv(self.width, patch, patch, dtype=self.dtype)(latent).reshape(batch, rows * columns, self.width)
        positions = self.param("positions", nn.initializers.normal(0.02), (1, rows * columns, self.width))
        x = x + positions.astype(self.dtype)
        condition = self._condition(time, label)
        for _ in range(self.layers):
            x = self._block(x, condition)
        scale, shift = self._modulation(condition, 2)
        patches = nn.Dense(_PATCH * _PATCH * channels)(self._modulated(x, scale, shift))
        patches = patches.reshape(batch, rows, columns, *patch, channels)
        return jnp.einsum("bhwpqc->bhpwqc", patches).reshape(latent.shape)


def training(
    layers: int = 6, width: int = 384, heads: int = 6, classes: int = 1000, batch: int = 128, side: int = 32
) -> Training:
    latents = f32(batch, side, side, 4)

    def loss(denoised, batch):
        return ((denoised - batch[1]) ** 2).mean()

    model = DiffusionTransformer(layers, width, heads, classes)
    return training_of(model, (latents, f32(batch), i32(batch)), latents, loss)
