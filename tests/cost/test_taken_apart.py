"""Blocks whose queries, keys and values, or gates, lie beside each other, held to compiled ones.

Each is a gradient of one block on one v5e, as libtpu 0.0.51 compiles it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

Sizes = tuple[int, int, int, int]
"""Sequences, tokens, heads, features of a head."""


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype("f4") * q.shape[-1] ** -0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(q.dtype), v)
    return mixed.reshape(*mixed.shape[:2], -1)


def by_number(y: jax.Array, heads: int) -> jax.Array:
    y = y.reshape(*y.shape[:2], 3, heads, -1)
    return attend(y[:, :, 0], y[:, :, 1], y[:, :, 2])


def split(y: jax.Array, heads: int) -> jax.Array:
    q, k, v = jnp.split(y.reshape(*y.shape[:2], 3, heads, -1), 3, 2)
    return attend(q[:, :, 0], k[:, :, 0], v[:, :, 0])


def transposed(y: jax.Array, heads: int) -> jax.Array:
    q, k, v = y.reshape(*y.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4)
    return attend(*(each.transpose(0, 2, 1, 3) for each in (q, k, v)))


def behind_heads(y: jax.Array, heads: int) -> jax.Array:
    y = y.reshape(*y.shape[:2], heads, 3, -1)
    return attend(y[:, :, :, 0], y[:, :, :, 1], y[:, :, :, 2])


def side_by_side(y: jax.Array, heads: int) -> jax.Array:
    return attend(*jnp.split(y.reshape(*y.shape[:2], heads, -1), 3, -1))


def halves(y: jax.Array, heads: int) -> jax.Array:
    y = y.reshape(*y.shape[:2], 2, -1)
    return y[:, :, 0] * jax.nn.silu(y[:, :, 1])


def gates(y: jax.Array, heads: int) -> jax.Array:
    y = y.reshape(*y.shape[:2], 4, -1)
    return y[:, :, 0] * jax.nn.silu(y[:, :, 1]) + y[:, :, 2] * jnp.tanh(y[:, :, 3])


@pytest.mark.parametrize(
    ("mixed", "parts", "sizes", "dtype", "compiled_us"),
    [
        (by_number, 3, (8, 256, 16, 64), "bf16", 887.5),
        (split, 3, (8, 256, 16, 72), "bf16", 985.3),
        (transposed, 3, (8, 256, 16, 64), "bf16", 840.5),
        (behind_heads, 3, (8, 256, 16, 64), "bf16", 887.5),
        (side_by_side, 3, (8, 256, 16, 64), "bf16", 673.1),
        (by_number, 3, (8, 256, 16, 64), "f32", 783.5),
        (by_number, 3, (8, 64, 8, 128), "bf16", 200.9),
        (by_number, 3, (16, 197, 12, 64), "bf16", 1120.5),
        (by_number, 3, (2, 1024, 16, 128), "bf16", 4068.5),
        (by_number, 3, (1, 1024, 16, 64), "bf16", 748.6),
        (by_number, 3, (64, 197, 12, 64), "bf16", 6094.3),
        (by_number, 3, (96, 256, 16, 64), "bf16", 15821.1),
        (halves, 2, (8, 256, 16, 64), "bf16", 329.8),
        (halves, 2, (8, 1024, 16, 64), "f32", 1393.7),
        (gates, 4, (32, 128, 12, 64), "bf16", 776.0),
        (gates, 4, (8, 1024, 16, 64), "f32", 3139.8),
    ],
)
def test_a_block_takes_what_the_compiler_says(
    mixed: Callable[..., jax.Array], parts: int, sizes: Sizes, dtype: str, compiled_us: float
):
    assert 0.84 < 1e6 * _seconds(mixed, parts, sizes, dtype) / compiled_us < 1.1


@pytest.mark.parametrize("device", ["h100", "cpu_host"])
def test_only_layout_tiles_ask_for_copies(device: str):
    apart, beside = (_seconds(mixed, 3, (8, 256, 16, 64), "bf16", device) for mixed in (by_number, side_by_side))
    assert apart == pytest.approx(beside, rel=0.1)


def _seconds(mixed: Callable[..., jax.Array], parts: int, sizes: Sizes, dtype: str, device: str = "tpu_v5e") -> float:
    sequences, tokens, heads, of_head = sizes
    width, type_ = heads * of_head, {"bf16": jnp.bfloat16, "f32": jnp.float32}[dtype]

    def loss(x: jax.Array, into: jax.Array, out: jax.Array) -> jax.Array:
        return jnp.square((x + mixed(jnp.tanh(x) @ into, heads) @ out).astype("f4")).sum()

    shapes = (sequences, tokens, width), (width, parts * width), (width, width)
    args = [jax.ShapeDtypeStruct(shape, type_) for shape in shapes]
    mesh = ap.Mesh({"x": 1}, device=device)
    estimate = ap.jit(jax.grad(loss, (0, 1, 2)), mesh, []).lower(*args).estimate
    assert estimate is not None
    return estimate.compute_s
