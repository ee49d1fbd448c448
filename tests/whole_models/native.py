"""Blocks of each framework's own layers: what most models outside are made of.

attention   norm, heads' attention           convolution   a kernel over places, and a norm
mlp         norm, two dense layers           recurrent     a cell over places
norm        norms of two sorts, dropout
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from tests.whole_models.blocks import More
from tests.whole_models.drawn import Drawn


def _groups(drawn: Drawn) -> int:
    return drawn.heads


def linen(drawn: Drawn, kind: str, x: jax.Array, more: More) -> jax.Array:
    """Called within a module's compact method."""
    d = drawn.width
    if kind == "attention":
        return x + nn.MultiHeadDotProductAttention(drawn.heads)(nn.LayerNorm()(x))
    if kind == "mlp":
        return x + nn.Dense(d)(nn.gelu(nn.Dense(4 * d)(nn.LayerNorm()(x))))
    if kind == "convolution":
        return x + nn.GroupNorm(_groups(drawn))(nn.Conv(d, (3,), feature_group_count=_groups(drawn))(x))
    if kind == "recurrent":
        return x + nn.RNN(nn.OptimizedLSTMCell(d, dtype=jnp.float32))(x.astype(jnp.float32))
    y = nn.RMSNorm()(x) + nn.Dropout(0.2, deterministic=True)(nn.LayerNorm(use_bias=False)(x))
    return nn.Einsum((d, d), "btd,de->bte")(y) if hasattr(nn, "Einsum") and drawn.heads > 1 else y


def nnx_layers(drawn: Drawn, kind: str, rngs: nnx.Rngs) -> nnx.List:
    """The layers of a block."""
    d, h = drawn.width, drawn.heads
    made = {
        "attention": lambda: [
            nnx.LayerNorm(d, rngs=rngs),
            nnx.MultiHeadAttention(h, d, decode=False, rngs=rngs),
        ],
        "mlp": lambda: [nnx.LayerNorm(d, rngs=rngs), nnx.Linear(d, 4 * d, rngs=rngs), nnx.Linear(4 * d, d, rngs=rngs)],
        "convolution": lambda: [nnx.Conv(d, d, (3,), rngs=rngs), nnx.GroupNorm(d, num_groups=h, rngs=rngs)],
        "recurrent": lambda: [nnx.RNN(nnx.GRUCell(d, d, rngs=rngs))],
        "norm": lambda: [nnx.RMSNorm(d, rngs=rngs), nnx.LoRA(d, 2, d, rngs=rngs)],
    }
    return nnx.List(made[kind]())


def nnx_block(drawn: Drawn, kind: str, layers: Any, x: jax.Array, more: More) -> jax.Array:
    """The layers applied."""
    if kind == "mlp":
        return x + layers[2](jax.nn.gelu(layers[1](layers[0](x))))
    y = x
    for layer in layers:
        y = layer(y)
    return x + y


def equinox_layers(drawn: Drawn, kind: str, key: jax.Array) -> list:
    """The layers of a block."""
    d, h = drawn.width, drawn.heads
    a, b = jax.random.split(key)
    return {
        "attention": lambda: [eqx.nn.LayerNorm(d), eqx.nn.MultiheadAttention(h, d, key=a)],
        "mlp": lambda: [eqx.nn.LayerNorm(d), eqx.nn.MLP(d, d, 2 * d, 1, activation=jax.nn.gelu, key=a)],
        "convolution": lambda: [eqx.nn.Conv1d(d, d, 3, padding=1, groups=h, key=a), eqx.nn.GroupNorm(h, d)],
        "recurrent": lambda: [eqx.nn.GRUCell(d, d, key=a)],
        "norm": lambda: [eqx.nn.RMSNorm(d), eqx.nn.Linear(d, d, key=b)],
    }[kind]()


def equinox_block(drawn: Drawn, kind: str, layers: list, x: jax.Array, more: More) -> jax.Array:
    """The layers applied to one example at a time, as equinox has them."""

    def one(x: jax.Array) -> jax.Array:
        if kind == "attention":
            y = jax.vmap(layers[0])(x)
            return x + layers[1](y, y, y)
        if kind == "convolution":
            return x + layers[1](layers[0](x.T)).T
        if kind == "recurrent":
            step = lambda h, v: (layers[0](v, h), layers[0](v, h))  # noqa: E731
            return x + lax.scan(step, jnp.zeros_like(x[0]), x)[1]
        return x + jax.vmap(lambda v: layers[1](layers[0](v)))(x)

    return jax.vmap(one)(x)


def haiku(drawn: Drawn, kind: str, x: jax.Array, more: More) -> jax.Array:
    """Called within a transformed function."""
    d, h = drawn.width, drawn.heads
    init = hk.initializers.VarianceScaling(1.0)
    norm = hk.LayerNorm(-1, True, True)
    if kind == "attention":
        y = norm(x)
        return x + hk.MultiHeadAttention(h, max(d // h, 1), w_init=init, model_size=d)(y, y, y)
    if kind == "mlp":
        return x + hk.nets.MLP([4 * d, d], activation=jax.nn.gelu)(norm(x))
    if kind == "convolution":
        return x + jax.nn.relu(hk.Conv1D(d, 3)(x))
    if kind == "recurrent":
        core = hk.GRU(d)
        y, _ = hk.dynamic_unroll(core, jnp.moveaxis(x, 1, 0), core.initial_state(x.shape[0]))
        return x + jnp.moveaxis(y, 0, 1).astype(x.dtype)
    return norm(x) + hk.RMSNorm(-1)(hk.Linear(d)(x))
