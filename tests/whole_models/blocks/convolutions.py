"""Convolutions along a sequence, pooling and patches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.whole_models.blocks.registered import Get, More, block


@block
def causal_convolution(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Depthwise, over places, padded at the start."""
    d = x.shape[-1]
    return x + jax.nn.silu(
        lax.conv_general_dilated(
            x, get("k", (4, 1, d)), (1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=d
        )
    )


@block
def dilated_convolution(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Gated, dilated (WaveNet)."""
    d = x.shape[-1]
    y = lax.conv_general_dilated(
        x, get("k", (3, d, 2 * d)), (1,), "SAME", rhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC")
    )
    a, b = jnp.split(y, 2, -1)
    return x + (jnp.tanh(a) * jax.nn.sigmoid(b)) @ get("w", (d, d))


@block
def down_and_up(get: Get, x: jax.Array, more: More) -> jax.Array:
    """A strided convolution, and back by a transposed one and a repeat (UNet)."""
    d, t = x.shape[-1], x.shape[1]
    numbers = ("NWC", "WIO", "NWC")
    small = jax.nn.relu(lax.conv_general_dilated(x, get("down", (2, d, d)), (2,), "SAME", dimension_numbers=numbers))
    up = lax.conv_transpose(small, get("up", (2, d, d)), (2,), "SAME", dimension_numbers=numbers)[:, :t]
    return x + up + jnp.repeat(small, 2, axis=1)[:, :t]


@block
def grouped_convolution(get: Get, x: jax.Array, more: More) -> jax.Array:
    """In groups, then a norm over groups of features (ResNeXt)."""
    b, t, d = x.shape
    groups = len(more.heads)
    y = lax.conv_general_dilated(
        x,
        get("k", (3, d // groups, d)),
        (1,),
        "SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=groups,
    ).reshape(b, t, groups, d // groups)
    y = (y - y.mean((1, 3), keepdims=True)) * lax.rsqrt(y.var((1, 3), keepdims=True) + 1e-5)
    return x + y.reshape(x.shape) * get("s", (d,))


@block
def pooled(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Max and mean over windows, squeeze and excite."""
    d = x.shape[-1]
    top = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 1), (1, 1, 1), "SAME")
    mean = lax.reduce_window(x, 0.0, lax.add, (1, 3, 1), (1, 1, 1), "SAME") / 3
    gate = jax.nn.sigmoid(jax.nn.relu(x.mean(1) @ get("a", (d, max(d // 4, 1)))) @ get("b", (max(d // 4, 1), d)))
    return x + (top - mean) * gate[:, None]


@block
def patches(get: Get, x: jax.Array, more: More) -> jax.Array:
    """Pairs of places become one row and are taken apart again (Swin's merging)."""
    b, t, d = x.shape
    even = t - t % 2
    rows = x[:, :even].reshape(b, even // 2, 2 * d)
    y = (rows @ get("w", (2 * d, 2 * d))).reshape(b, even, d)
    return x + jnp.concatenate([y, jnp.zeros_like(x[:, even:])], 1)
