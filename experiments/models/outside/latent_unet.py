"""The U-Net of Stable Diffusion in flax linen, trained in bf16 with Lion to tell the noise in latents: residual blocks
with an embedding of the time, and transformers that attend to the tokens of a text."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, f32
from experiments.models.outside.training import training as around

SMALL = {"widths": (32, 64), "heads": 4, "side": 8, "tokens": 8, "text": 16, "batch": 8}

BF16 = jnp.bfloat16


class Residual(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: jax.Array, time: jax.Array) -> jax.Array:
        y = nn.Conv(self.width, (3, 3), dtype=BF16)(nn.silu(nn.GroupNorm(32, dtype=BF16)(x)))
        y = y + nn.Dense(self.width, dtype=BF16)(nn.silu(time))[:, None, None]
        y = nn.Conv(self.width, (3, 3), dtype=BF16)(nn.silu(nn.GroupNorm(32, dtype=BF16)(y)))
        if x.shape[-1] != self.width:
            x = nn.Conv(self.width, (1, 1), dtype=BF16)(x)
        return x + y


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, seen: jax.Array) -> jax.Array:
        width = x.shape[-1]

        def project(y: jax.Array, name: str) -> jax.Array:
            return nn.DenseGeneral((self.heads, width // self.heads), use_bias=False, dtype=BF16, name=name)(y)

        q, k, v = project(x, "to_q"), project(seen, "to_k"), project(seen, "to_v")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // self.heads) ** -0.5
        shares = nn.softmax(scores.astype(jnp.float32)).astype(BF16)
        return nn.DenseGeneral(width, (-2, -1), dtype=BF16)(jnp.einsum("bhqk,bkhd->bqhd", shares, v))


class Transformer(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, text: jax.Array) -> jax.Array:
        batch, height, wide, width = x.shape
        y = nn.Dense(width, dtype=BF16)(nn.GroupNorm(32, epsilon=1e-6, dtype=BF16)(x).reshape(batch, -1, width))
        own = nn.LayerNorm(dtype=BF16)(y)
        y = y + Attention(self.heads)(own, own)
        y = y + Attention(self.heads)(nn.LayerNorm(dtype=BF16)(y), text)
        level, gate = jnp.split(nn.Dense(8 * width, dtype=BF16)(nn.LayerNorm(dtype=BF16)(y)), 2, -1)
        y = y + nn.Dense(width, dtype=BF16)(level * nn.gelu(gate))
        return x + nn.Dense(width, dtype=BF16)(y).reshape(batch, height, wide, width)


class LatentUnet(nn.Module):
    widths: tuple[int, ...]
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        half, channels = self.widths[0] // 2, x.shape[-1]
        angles = time[:, None] * jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / half)
        time = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1)
        time = nn.Dense(4 * self.widths[0], dtype=BF16)(time)
        time = nn.Dense(4 * self.widths[0], dtype=BF16)(nn.silu(time))
        x = nn.Conv(self.widths[0], (3, 3), dtype=BF16)(x)
        kept = []
        for width in self.widths[:-1]:
            x = Residual(width)(x, time)
            kept.append(x)
            x = nn.Conv(width, (3, 3), strides=2, dtype=BF16)(x)
        x = Transformer(self.heads)(Residual(self.widths[-1])(x, time), text)
        x = Residual(self.widths[-1])(x, time)
        for width in self.widths[-2::-1]:
            x = jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")
            x = nn.Conv(width, (3, 3), dtype=BF16)(x)
            x = Residual(width)(jnp.concatenate([x, kept.pop()], -1), time)
        return nn.Conv(channels, (3, 3))(nn.silu(nn.GroupNorm(32)(x)))


def training(
    widths: tuple[int, ...] = (320, 640),
    heads: int = 8,
    side: int = 32,
    tokens: int = 77,
    text: int = 768,
    batch: int = 64,
) -> Training:
    model = LatentUnet(widths, heads)
    signal = jnp.cumprod(1 - jnp.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)

    def loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        clean = 0.18215 * batch["latents"]
        of_time, of_noise = jax.random.split(jax.random.wrap_key_data(batch["key"]))
        time = jax.random.randint(of_time, (len(clean),), 0, 1000)
        noise = jax.random.normal(of_noise, clean.shape)
        kept = signal[time][:, None, None, None]
        noisy = jnp.sqrt(kept) * clean + jnp.sqrt(1 - kept) * noise
        return jnp.mean((model.apply({"params": params}, noisy, time, batch["text"].astype(BF16)) - noise) ** 2)

    def init(key: jax.Array) -> Any:
        return model.init(key, jnp.zeros((1, side, side, 4)), jnp.zeros(1), jnp.zeros((1, tokens, text)))["params"]

    inputs = {
        "latents": f32(batch, side, side, 4),
        "text": f32(batch, tokens, text),
        "key": jax.ShapeDtypeStruct((2,), jnp.uint32),
    }
    return around(loss, optax.lion(3e-5, weight_decay=0.1, mu_dtype=BF16), init, inputs)
