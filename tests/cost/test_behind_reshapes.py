"""Does a reshape end a kernel? Microseconds as libtpu 0.0.51 has them on v5e, which no test compiles again."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, nodes_of, simulated

BATCH, TOKENS, WIDTH = 128, 256, 256
X, FLAT, W = f32(BATCH, TOKENS, WIDTH), f32(BATCH * TOKENS, WIDTH), f32(WIDTH, WIDTH)


def flat(x: jax.Array) -> jax.Array:
    return x.reshape(-1, WIDTH)


def cubic(x: jax.Array) -> jax.Array:
    return x.reshape(BATCH, TOKENS, WIDTH)


TAKEN: dict[str, tuple[Callable[..., object], tuple[object, ...], float]] = {
    "merged for a product": (lambda x, w: flat(jnp.tanh(x)) @ w, (X, W), 225.0),
    "split for a product": (lambda x, w: cubic(jnp.tanh(x)) @ w, (FLAT, W), 225.4),
    "places of images": (lambda x, w: cubic(jnp.tanh(x)) @ w, (f32(BATCH, 16, 16, WIDTH), W), 225.4),
    "of two arrays": (lambda x, y, w: flat(x * y) @ w, (X, X, W), 270.5),
    "rounded": (
        lambda x, w: flat(x.astype(jnp.bfloat16)) @ w, (X, jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.bfloat16)), 247.8,
    ),
    "through two": (lambda x, y, w: flat((x + y).reshape(2, BATCH // 2, TOKENS, WIDTH)) @ w, (X, X, W), 270.5),
    "added up along": (lambda x, y: flat(jnp.tanh(x)).T @ y, (X, FLAT), 192.5),
    "turned before": (lambda x, w: flat(jnp.tanh(x).swapaxes(0, 1)) @ w, (X, W), 164.9),
    "no reshape": (lambda x, w: (jnp.tanh(x)[:, None]).reshape(-1, WIDTH) @ w, (FLAT, W), 117.4),
    "for another array": (lambda x, y, z: flat(x * y) + z, (X, X, FLAT), 321.5),
    "for a sum": (lambda x, y: flat(x * y).sum(0), (X, X), 152.6),
    "for a product of which a sum": (lambda x, y, z: (flat(x * y) * z).sum(0), (X, X, FLAT), 319.2),
    "of a product": (lambda x, w, y: cubic(x @ w) + y, (FLAT, W, X), 238.4),
    "two readers": (lambda x, y, z: (x * y, flat(x * y) + z), (X, X, FLAT), 321.5),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_reshaped_takes_what_the_compiler_says(case: str):
    function, args, compiled_us = TAKEN[case]
    run = simulated(function, *args, device="tpu_v5e")
    assert 0.85 < 1e6 * run.compute_s / compiled_us < 1.2


@pytest.mark.parametrize(("row", "written"), [(128, False), (256, True), (512, True)])
def test_a_slice_goes_to_other_tiles_as_its_only_long_dim_is_left_alone(row: int, written: bool):
    def discounted(last, rewards):
        return jax.lax.scan(lambda last, reward: (0.9 * last + reward, None), last, rewards)[0]

    run = simulated(discounted, f32(row), f32(128, row), device="tpu_v5e")
    assert bool(nodes_of(run, "dynamic_slice")) == written


def test_an_op_of_one_array_runs_before_the_reshape():
    run = simulated(lambda x, w: jnp.tanh(cubic(x @ w)), FLAT, W, device="tpu_v5e")
    (product,), (last,) = nodes_of(run, "dot_general"), nodes_of(run, "tanh")
    assert run.leader[last] == product


def test_of_images_it_ends_none():
    def convolved(x, w, y):
        made = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return made.reshape(8, 16, *made.shape[1:]) * y

    run = simulated(convolved, f32(128, 16, 16, 64), f32(3, 3, 64, 64), f32(8, 16, 16, 16, 64), device="tpu_v5e")
    assert not run.program_arrays.ops["reshapes"].any()


@pytest.mark.parametrize("device", ["h100", "cpu_host"])
def test_only_layout_tiles_make_it_end_one(device: str):
    run = simulated(TAKEN["for another array"][0], *TAKEN["for another array"][1], device=device)
    assert not nodes_of(run, "multiply")
