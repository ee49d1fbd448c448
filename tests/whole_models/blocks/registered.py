"""Blocks of models, written once for all frameworks.

    get("up", (64, 256))     a parameter: a framework's own way to make or find it
    x                        [batch, length, width]; a block returns the same shape
    more                     what else a block may read: a key, edges of a graph, heads

A block is registered by its function's name. It is written as in papers' code, with whatever way of writing is usual:
`einsum` here, `transpose` and `reshape` there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Get = Callable[..., jax.Array]


class More(NamedTuple):
    """What a block reads besides its parameters and its input.

    key     for random numbers
    edges   int32[edges, 2] of nodes; a node is a place of a sequence
    heads   of attention, as an array's shape, since it is no number to compute with: [heads]
    """

    key: jax.Array
    edges: jax.Array
    heads: jax.Array


BLOCKS: dict[str, Callable[[Get, jax.Array, More], jax.Array]] = {}


def block(make: Callable[[Get, jax.Array, More], jax.Array]) -> Callable[[Get, jax.Array, More], jax.Array]:
    """Registers a block under its function's name."""
    if make.__name__ in BLOCKS:
        raise ValueError(f"two blocks are called {make.__name__}")
    BLOCKS[make.__name__] = make
    return make


def rms(get: Get, x: jax.Array, name: str = "norm") -> jax.Array:
    """Root mean square norm over the last dim, in f32 as usual."""
    wide = x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
    normed = wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (normed * get(name, (x.shape[-1],))).astype(x.dtype)


def layer_norm(get: Get, x: jax.Array, name: str = "ln") -> jax.Array:
    """Mean and variance over the last dim."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * get(f"{name}_s", (x.shape[-1],)) + get(f"{name}_b", (x.shape[-1],))
