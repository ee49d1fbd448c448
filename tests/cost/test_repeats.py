"""What is repeated is written out, and summed up by itself. Microseconds as libtpu 0.0.51 has them on v5e."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.simulator.facts.repeats import REPEATS, SUMS
from tests.cost.programs import f32, nodes_of, simulated

IMAGES = f32(32, 16, 16, 128), f32(3, 3, 128, 128), f32(3, 3, 128, 128)
FEW = f32(16, 32, 32, 64), f32(3, 3, 64, 64), f32(3, 3, 64, 64)
TOKENS, HEADS, GROUPS, WIDTH = 512, 16, 4, 64


def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def twice(x: jax.Array) -> jax.Array:
    return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)


def spread(x: jax.Array) -> jax.Array:
    images, height, width, features = x.shape
    apart = jnp.broadcast_to(x[:, :, None, :, None, :], (images, height, 2, width, 2, features))
    return apart.reshape(images, 2 * height, 2 * width, features)


def between(longer: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    return lambda x, w, v: convolved(longer(jax.nn.relu(convolved(x, w))), v)


def averaged(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    made = jax.nn.silu(convolved(x, w))
    images, height, width, features = made.shape
    return convolved(made.reshape(images, height // 2, 2, width // 2, 2, features).mean((2, 4)), v)


def attended(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def grouped(x: jax.Array, wq: jax.Array, wk: jax.Array, wv: jax.Array) -> jax.Array:
    q = (x @ wq).reshape(-1, TOKENS, HEADS, WIDTH)
    k, v = ((x @ w).reshape(-1, TOKENS, HEADS // GROUPS, WIDTH) for w in (wk, wv))
    return attended(q, jnp.repeat(k, GROUPS, 2), jnp.repeat(v, GROUPS, 2))


def gradient(function: Callable[..., jax.Array], *of: int) -> Callable[..., object]:
    return jax.grad(lambda *given: jnp.square(function(*given)).astype(jnp.float32).sum(), of)


def weights(dtype: jnp.dtype) -> tuple[jax.ShapeDtypeStruct, ...]:
    shapes = (8, TOKENS, 1024), (1024, 1024), (1024, 256), (1024, 256)
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)


TAKEN: dict[str, tuple[Callable[..., object], tuple[jax.ShapeDtypeStruct, ...], float]] = {
    "repeated twice": (between(twice), IMAGES, 199.2),
    "and the gradient": (gradient(between(twice), 1, 2), IMAGES, 420.9),
    "of 64 features": (gradient(between(twice), 1, 2), FEW, 746.8),
    "broadcast at once": (gradient(between(spread), 1, 2), IMAGES, 362.3),
    "means of four places": (averaged, IMAGES, 36.1),
    "keys and values for four heads": (gradient(grouped, 1, 2, 3), weights(jnp.bfloat16), 1710.6),
    "in f32": (gradient(grouped, 1, 2, 3), weights(jnp.float32), 2917.9),
}


@pytest.mark.parametrize("case", TAKEN)
def test_repeats_take_what_the_compiler_says(case: str):
    function, args, compiled_us = TAKEN[case]
    run = simulated(function, *args, device="tpu_v5e")
    assert 0.8 < 1e6 * run.compute_s / compiled_us < 1.2


def test_means_of_groups_are_spread_inside_what_reads_them():
    def normed(x):
        grouped = x.reshape(*x.shape[:3], 8, 16)
        return ((grouped - grouped.mean((1, 2, 4), keepdims=True)).reshape(x.shape)) * 2

    run = simulated(normed, f32(32, 16, 16, 128), device="tpu_v5e")
    assert not run.program_arrays.ops["moved"].any()


@pytest.mark.parametrize(("device", "apart"), [("tpu_v5e", True), ("h100", False), ("cpu_host", False)])
def test_only_tpus_repeat_by_themselves(device: str, apart: bool):
    run = simulated(gradient(between(twice), 1, 2), *IMAGES, device=device)
    marks = set(run.program_arrays.ops["moved"].tolist())
    assert marks == ({0, REPEATS, SUMS} if apart else {0})
    if apart:
        assert len(nodes_of(run, "broadcast_in_dim")) >= 2
