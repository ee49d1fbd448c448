"""A language model of long convolutions, as Hyena: filters from a network of sines, applied by FFT, gated; Lion."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.models.outside.training import Training, cross_entropy, i32
from experiments.models.outside.training import training as around

SMALL = {"layers": 1, "width": 16, "vocabulary": 64, "length": 16, "batch": 8}

Params = dict[str, Any]


def _dense(key: jax.Array, rows: int, columns: int) -> jax.Array:
    return jax.random.normal(key, (rows, columns)) * rows**-0.5


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def _filter(params: Params, length: int) -> jax.Array:
    """[length, width]: sines of sines of the time, fading at another speed for each feature."""
    time = jnp.linspace(0, 1, length)[:, None]
    x = jnp.concatenate([time, *(f(2 * jnp.pi * k * time) for k in range(1, 9) for f in (jnp.sin, jnp.cos))], 1)
    for w in params["sines"]:
        x = jnp.sin(x @ w)
    return x @ params["out"] * jnp.exp(-time * jnp.abs(params["fade"]))


def _long(x: jax.Array, taps: jax.Array) -> jax.Array:
    """A causal convolution along the tokens of `x` [batch, length, width] with as many taps as there are tokens."""
    length = x.shape[1]
    product = jnp.fft.rfft(x, 2 * length, axis=1) * jnp.fft.rfft(taps, 2 * length, axis=0)
    return jnp.fft.irfft(product, 2 * length, axis=1)[:, :length]


def _block(params: Params, x: jax.Array) -> jax.Array:
    gate, key, value = jnp.split(_norm(x, params["scale"]) @ params["into"], 3, -1)
    value = key * value
    value = _long(value, _filter(params["filter"], x.shape[1])) + value * params["skip"]
    x = x + (gate * value) @ params["out"]
    return x + jax.nn.gelu(_norm(x, params["scale_mlp"]) @ params["up"]) @ params["down"]


def training(
    layers: int = 2, width: int = 512, vocabulary: int = 8192, length: int = 1024, batch: int = 32
) -> Training:
    def init(key: jax.Array) -> Params:
        keys = iter(jax.random.split(key, 2 + 8 * layers))

        def block() -> Params:
            sines = [_dense(next(keys), 17, 64), _dense(next(keys), 64, 64)]
            fade = jnp.linspace(1.0, 20.0, width)
            return {
                "scale": jnp.ones(width),
                "into": _dense(next(keys), width, 3 * width),
                "filter": {"sines": sines, "out": _dense(next(keys), 64, width), "fade": fade},
                "skip": jnp.ones(width),
                "out": _dense(next(keys), width, width),
                "scale_mlp": jnp.ones(width),
                "up": _dense(next(keys), width, 4 * width),
                "down": _dense(next(keys), 4 * width, width),
            }

        blocks = [block() for _ in range(layers)]
        return {"embedding": _dense(next(keys), vocabulary, width), "blocks": blocks, "scale": jnp.ones(width)}

    def loss(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
        x = params["embedding"][batch["tokens"]]
        for block in params["blocks"]:
            x = _block(block, x)
        return cross_entropy(_norm(x, params["scale"]) @ params["embedding"].T, batch["next"])

    tokens = i32(batch, length)
    return around(loss, optax.lion(1e-4, weight_decay=0.1), init, {"tokens": tokens, "next": tokens})
