"""HiFi-GAN in flax linen, each player trained with an AdamW of its own: transposed convolutions from a spectrogram to a
wave, residual blocks of several windows whose outputs are averaged, and judges that fold the wave by periods."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32, training_by

SMALL = {
    "width": 32, "rates": (4, 2), "windows": (3, 5), "judge_widths": (8, 16), "periods": (2, 3), "bands": 16,
    "frames": 8, "batch": 8,
}  # fmt: skip


class Receptive(nn.Module):
    """A residual block of one window."""

    window: int
    dilations: tuple[int, ...] = (1, 3)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for dilation in self.dilations:
            y = nn.Conv(x.shape[-1], (self.window,), kernel_dilation=dilation)(nn.leaky_relu(x, 0.1))
            x = x + y
        return x


class Generator(nn.Module):
    width: int
    rates: tuple[int, ...]
    windows: tuple[int, ...]

    @nn.compact
    def __call__(self, mel: jax.Array) -> jax.Array:
        """[batch, frames, bands] -> [batch, samples]."""
        x = nn.Conv(self.width, (7,))(mel)
        for i, rate in enumerate(self.rates):
            x = nn.ConvTranspose(self.width // 2 ** (i + 1), (2 * rate,), strides=(rate,))(nn.leaky_relu(x, 0.1))
            x = sum(Receptive(window)(x) for window in self.windows) / len(self.windows)
        return jnp.tanh(nn.Conv(1, (7,))(nn.leaky_relu(x)))[..., 0]


class Judge(nn.Module):
    period: int
    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, wave: jax.Array) -> list[jax.Array]:
        """What each layer says of [batch, samples]; the last is the verdict."""
        batch, samples = wave.shape
        wave = jnp.pad(wave, ((0, 0), (0, -samples % self.period)), mode="reflect")
        x = wave.reshape(batch, -1, self.period, 1)
        said = []
        for width in self.widths:
            x = nn.leaky_relu(nn.Conv(width, (5, 1), strides=(3, 1), padding=((2, 2), (0, 0)))(x), 0.1)
            said.append(x)
        return [*said, nn.Conv(1, (3, 1))(x)]


def _pooled(wave: jax.Array, scale: int) -> jax.Array:
    return nn.avg_pool(wave[..., None], (scale,), (scale,))[..., 0]


def _off(made: jax.Array, real: jax.Array) -> jax.Array:
    """Between waves at several scales, and between how loud their frames are."""
    off = sum(jnp.abs(_pooled(made, scale) - _pooled(real, scale)).mean() for scale in (1, 4, 16))
    loud = (jnp.log(_pooled(wave**2, 32) + 1e-5) for wave in (made, real))
    return off + jnp.abs(next(loud) - next(loud)).mean()


def training(
    width: int = 256, rates: tuple[int, ...] = (8, 8, 4), windows: tuple[int, ...] = (3, 5, 7),
    judge_widths: tuple[int, ...] = (32, 128, 512, 1024), periods: tuple[int, ...] = (2, 3, 5), bands: int = 80,
    frames: int = 32, batch: int = 64,
) -> Training:  # fmt: skip
    generator = Generator(width, rates, windows)
    judges = [Judge(period, judge_widths) for period in periods]
    schedule = optax.exponential_decay(2e-4, 1000, 0.999)
    optimizers = {name: optax.adamw(schedule, b1=0.8, b2=0.99) for name in ("generator", "judges")}

    def said(params: Any, wave: jax.Array) -> list[list[jax.Array]]:
        return [judge.apply({"params": p}, wave) for judge, p in zip(judges, params, strict=True)]

    def judged(params: Any, made: jax.Array, real: jax.Array) -> jax.Array:
        pairs = zip(said(params, made), said(params, real), strict=True)
        return sum(jnp.mean(fake[-1] ** 2) + jnp.mean((true[-1] - 1) ** 2) for fake, true in pairs)

    def fools(params: Any, judges: Any, batch: dict[str, jax.Array]) -> jax.Array:
        made = generator.apply({"params": params}, batch["mel"])
        value = 45.0 * _off(made, batch["wave"])
        for fake, true in zip(said(judges, made), said(judges, batch["wave"]), strict=True):
            value += jnp.mean((fake[-1] - 1) ** 2)
            value += 2.0 * sum(jnp.abs(f - t).mean() for f, t in zip(fake[:-1], true[:-1], strict=True))
        return value

    def step(params: Any, opt_state: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
        params, opt_state = dict(params), dict(opt_state)

        def follow(player: str, gradients: Any) -> None:
            updates, opt_state[player] = optimizers[player].update(gradients, opt_state[player], params[player])
            params[player] = optax.apply_updates(params[player], updates)

        made = jax.lax.stop_gradient(generator.apply({"params": params["generator"]}, batch["mel"]))
        verdict, gradients = jax.value_and_grad(judged)(params["judges"], made, batch["wave"])
        follow("judges", gradients)
        value, gradients = jax.value_and_grad(fools)(params["generator"], params["judges"], batch)
        follow("generator", gradients)
        return params, opt_state, value + verdict

    def initial(key: jax.Array) -> tuple[Any, Any]:
        first, *keys = jax.random.split(key, 1 + len(periods))
        made = generator.init(first, jnp.zeros((1, frames, bands)))["params"]
        wave = jnp.zeros((1, samples))
        params = {
            "generator": made,
            "judges": [judge.init(k, wave)["params"] for judge, k in zip(judges, keys, strict=True)],
        }
        return params, {name: optimizer.init(params[name]) for name, optimizer in optimizers.items()}

    samples = frames * math.prod(rates)
    return training_by(step, initial, {"mel": f32(batch, frames, bands), "wave": f32(batch, samples)})
