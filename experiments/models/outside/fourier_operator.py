"""Fourier neural operator in flax linen, trained with AdamW: complex weights of the lowest frequencies of a field."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.models.outside.training import Training, f32, training_of

SMALL = {"layers": 2, "width": 8, "modes": 4, "hidden": 16, "side": 16, "batch": 8}


class FourierOperator(nn.Module):
    layers: int
    width: int
    modes: int
    """Frequencies that are kept along either dim."""
    hidden: int

    def _filtered(self, x: jax.Array, layer: int) -> jax.Array:
        modes, normal = self.modes, nn.initializers.normal()
        real = self.param(f"real{layer}", normal, (modes, modes, self.width, self.width))
        imaginary = self.param(f"imaginary{layer}", normal, (modes, modes, self.width, self.width))
        kept = jnp.fft.rfft2(x, axes=(1, 2))[:, :modes, :modes]
        y = jnp.einsum("bxyi,xyio->bxyo", kept, real + 1j * imaginary)
        y = jnp.pad(y, ((0, 0), (0, x.shape[1] - modes), (0, x.shape[2] // 2 + 1 - modes), (0, 0)))
        return jnp.fft.irfft2(y, axes=(1, 2))

    @nn.compact
    def __call__(self, field: jax.Array) -> jax.Array:
        x = nn.Dense(self.width)(field)
        for layer in range(self.layers):
            x = nn.gelu(self._filtered(x, layer) + nn.Dense(self.width)(x))
        head = nn.Dense(1)
        return head(nn.gelu(nn.Dense(self.hidden)(x)))


def training(
    layers: int = 3, width: int = 64, modes: int = 16, hidden: int = 128, side: int = 64, batch: int = 32
) -> Training:
    return training_of(
        FourierOperator(layers=layers, width=width, modes=modes, hidden=hidden),
        (f32(batch, side, side, 3),),
        f32(batch, side, side, 1),
        lambda field, batch: ((field - batch[1]) ** 2).mean(),
    )
