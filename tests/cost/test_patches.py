"""What is taken together of an image is copied. Microseconds as libtpu 0.0.51 has them on v5e, never compiled again."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.simulator.simulator import Simulation
from tests.cost.programs import f32, nodes_of, simulated


def bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def taken_together(x: jax.Array, by: int) -> jax.Array:
    images, height, width, features = x.shape
    apart = x.reshape(images, height // by, by, width // by, by, features).transpose(0, 1, 3, 2, 4, 5)
    return apart.reshape(images, height // by, width // by, by * by * features)


def spread_out(x: jax.Array, by: int) -> jax.Array:
    images, height, width, features = x.shape
    apart = x.reshape(images, height, width, by, by, features // by**2).transpose(0, 1, 3, 2, 4, 5)
    return apart.reshape(images, height * by, width * by, features // by**2)


def in_windows(x: jax.Array, by: int) -> jax.Array:
    images, height, width, features = x.shape
    apart = x.reshape(images, height // by, by, width // by, by, features).transpose(0, 1, 3, 2, 4, 5)
    return apart.reshape(-1, by * by, features)


def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normal(x: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) - mean * mean + 1e-5)


def gradient(function: Callable[..., jax.Array], *of: int) -> Callable[..., object]:
    return jax.grad(lambda *given: jnp.square(function(*given)).astype(jnp.float32).sum(), of)


def patches(by: int) -> Callable[..., jax.Array]:
    return lambda x, w: taken_together(jnp.tanh(x), by) @ w


def merged(x: jax.Array, w: jax.Array) -> jax.Array:
    return normal(taken_together(x, 2)).astype(x.dtype) @ w


def shuffled(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    return convolved(spread_out(convolved(x, w), 2), v)


def windows(by: int) -> Callable[..., jax.Array]:
    def attended(x, w):
        y = in_windows(jnp.tanh(x), by)
        return jnp.einsum("btc,bsc->bts", y @ w, y)

    return attended


TAKEN: dict[str, tuple[Callable[..., object], tuple[object, ...], float]] = {
    "patches for a product": (patches(2), (f32(32, 32, 32, 128), f32(512, 256)), 349.3),
    "of 96 features": (patches(2), (bf16(16, 56, 56, 96), bf16(384, 192)), 549.0),
    "and their gradient": (gradient(patches(2), 0, 1), (bf16(16, 56, 56, 96), bf16(384, 192)), 732.8),
    "of four places": (patches(4), (f32(32, 32, 32, 64), f32(1024, 256)), 215.7),
    "normed before": (merged, (bf16(16, 56, 56, 96), bf16(384, 192)), 510.0),
    "normed, and their gradient": (gradient(merged, 0, 1), (bf16(16, 56, 56, 96), bf16(384, 192)), 785.5),
    "of 128 features, normed": (gradient(merged, 0, 1), (bf16(64, 28, 28, 128), bf16(512, 256)), 716.3),
    "shuffled pixels": (shuffled, (f32(16, 32, 32, 64), f32(3, 3, 64, 256), f32(3, 3, 64, 16)), 315.3),
    "and the gradient": (gradient(shuffled, 1, 2), (f32(16, 32, 32, 64), f32(3, 3, 64, 256), f32(3, 3, 64, 16)), 888.7),
    "of 64 images": (
        gradient(shuffled, 1, 2), (bf16(64, 16, 16, 128), bf16(3, 3, 128, 512), bf16(3, 3, 128, 64)), 1052.3,
    ),
    "windows of 7": (gradient(windows(7), 0, 1), (bf16(16, 56, 56, 96), bf16(96, 96)), 606.4),
    "windows of whole tiles": (gradient(windows(8), 0, 1), (f32(8, 32, 32, 128), f32(128, 128)), 79.9),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_patches_take_what_the_compiler_says(case: str):
    function, args, compiled_us = TAKEN[case]
    run = simulated(function, *args, device="tpu_v5e")
    assert 0.8 < 1e6 * run.compute_s / compiled_us < 1.25


def copies(function: Callable[..., object], *args: object, device: str = "tpu_v5e") -> tuple[Simulation, list[int]]:
    run = simulated(function, *args, device=device)
    moved = run.program_arrays.ops["moved"]
    return run, [k for k in nodes_of(run, "transpose") if moved[run.graph.nodes["subject"][k]]]


def test_a_tile_of_two_rows_takes_as_long_as_one_of_eight():
    x = bf16(16, 56, 56, 96)
    run, (together,) = copies(patches(2), x, bf16(384, 192))
    apart, (spread,) = copies(lambda x: jnp.tanh(spread_out(jnp.tanh(x), 2)), bf16(16, 28, 28, 384))
    assert run.node_s[together] == pytest.approx(4 * apart.node_s[spread], rel=0.05)
    assert 1e6 * run.node_s[together] == pytest.approx(376.6, rel=0.05)


def test_few_images_of_three_colours_take_nothing_and_many_a_tile_for_each_eight_places():
    def seconds(images: int) -> float:
        run, (copy,) = copies(lambda x, w: taken_together(x, 16) @ w, f32(images, 224, 224, 3), f32(768, 768))
        return 1e6 * float(run.node_s[copy])

    assert seconds(8) < 100
    assert seconds(32) == pytest.approx(322.9, rel=0.2)
    assert seconds(64) == pytest.approx(322.9, rel=0.2)


def heads(x: jax.Array) -> jax.Array:
    return x.reshape(4, 128, 8, 64).transpose(0, 2, 1, 3).reshape(32, 128, 64)


@pytest.mark.parametrize(
    "free",
    [
        lambda x: heads(jnp.tanh(x)) * 2,
        lambda x: jnp.tanh(x).reshape(4, 128, 8, 64).transpose(0, 2, 1, 3) * 2,
        lambda x: jnp.tanh(x).transpose(0, 2, 1).reshape(4 * 512, 128) * 2,
    ],
)
def test_what_some_order_of_dims_lets_both_reshapes_read_is_no_copy(free):
    run, found = copies(free, f32(4, 128, 512))
    assert found == []
    assert not run.program_arrays.ops["moved"].any()


@pytest.mark.parametrize("device", ["h100", "cpu_host"])
def test_only_tpus_copy_tile_by_tile(device: str):
    run, found = copies(patches(2), f32(8, 32, 32, 64), f32(256, 256), device=device)
    assert found == []
    assert not run.program_arrays.ops["moved"].any()
