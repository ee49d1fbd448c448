"""WaveNet in flax linen, trained with Adam: dilated causal convolutions over samples, gates, skip connections."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, f32, i32
from experiments.models.outside.training import training as around

LEVELS = 256
"""Of a sample in mu-law."""


class WaveNet(nn.Module):
    channels: int
    layers: int

    @nn.compact
    def __call__(self, wave: jax.Array) -> jax.Array:
        x, skipped = nn.Conv(self.channels, (1,), name="stem")(wave), jnp.zeros(())
        for layer in range(self.layers):
            both = nn.Conv(2 * self.channels, (3,), kernel_dilation=2**layer, padding="CAUSAL", name=f"gate_{layer}")(x)
            filtered, gate = jnp.split(both, 2, axis=-1)
            gated = jnp.tanh(filtered) * nn.sigmoid(gate)
            skipped = skipped + nn.Dense(self.channels, name=f"skip_{layer}")(gated)
            x = x + nn.Dense(self.channels, name=f"stay_{layer}")(gated)
        return nn.Dense(LEVELS, name="head")(nn.relu(skipped))


def training(channels: int = 128, layers: int = 6, batch: int = 64, samples: int = 4096) -> Training:
    model = WaveNet(channels, layers)

    def loss(params, batch):
        return cross_entropy(model.apply({"params": params}, batch["wave"]), batch["next"])

    return around(
        loss,
        optax.adam(1e-3),
        lambda key: model.init(key, jnp.zeros((1, samples, 1)))["params"],
        {"wave": f32(batch, samples, 1), "next": i32(batch, samples)},
        {"skip_*/kernel": 0, "stay_*/kernel": 0},
    )
