"""Pools and products behind reshapes read what is written. Microseconds as libtpu 0.0.51 has them on v5e."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.simulator.simulator import Simulation
from tests.cost.programs import f32, nodes_of, simulated


def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def gradient(function: Callable[..., jax.Array], *of: int) -> Callable[..., object]:
    return jax.grad(lambda *given: jnp.square(function(*given)).sum(), of)


def pool_between(x, w, v):
    return convolved(pooled(jax.nn.relu(convolved(x, w))), v)


def flattened(x, w, v):
    made = jax.nn.relu(convolved(x, w))
    return made.reshape(len(made), -1) @ v


def flattened_pool(x, w, v):
    made = pooled(jax.nn.relu(convolved(x, w)))
    return made.reshape(len(made), -1) @ v


def two_layers(x, w, v):
    return jax.nn.relu(x @ w) @ v


def masked(x, w):
    return convolved(jax.nn.relu(convolved(x, w)) + x, w)


TAKEN: dict[str, tuple[Callable[..., jax.Array], tuple[jax.ShapeDtypeStruct, ...], float]] = {
    "pool, 128 features": (pool_between, (f32(64, 16, 16, 128), f32(3, 3, 128, 128), f32(3, 3, 128, 256)), 139.4),
    "pool, 256 images": (pool_between, (f32(256, 16, 16, 64), f32(3, 3, 64, 64), f32(3, 3, 64, 128)), 198.8),
    "flattened": (flattened, (f32(32, 14, 14, 256), f32(3, 3, 256, 256), f32(14 * 14 * 256, 1000)), 1106.5),
    "flattened pool": (flattened_pool, (f32(512, 8, 8, 64), f32(3, 3, 64, 64), f32(1024, 256)), 88.4),
    "two sequences": (two_layers, (f32(2, 512, 256), f32(256, 1024), f32(1024, 256)), 39.9),
    "three": (two_layers, (f32(3, 512, 256), f32(256, 1024), f32(1024, 256)), 52.2),
    "16": (two_layers, (f32(16, 512, 256), f32(256, 1024), f32(1024, 256)), 220.3),
    "rows of 32": (two_layers, (f32(32, 32, 256), f32(256, 1024), f32(1024, 256)), 39.6),
    "64 rows of 32, whose bits make no words": (two_layers, (f32(64, 32, 256), f32(256, 1024), f32(1024, 256)), 38.6),
    "8 by 64 rows of 32": (two_layers, (f32(8, 64, 32, 256), f32(256, 256), f32(256, 256)), 131.3),
}


@pytest.mark.parametrize("case", TAKEN)
def test_gradients_take_what_the_compiler_says(case: str):
    function, args, compiled_us = TAKEN[case]
    run = simulated(gradient(function, 1, 2), *args, device="tpu_v5e")
    assert 0.78 < 1e6 * run.compute_s / compiled_us < 1.25


def kernels_of(run: Simulation, kind: str) -> set[int]:
    return {int(run.leader[k]) for k in nodes_of(run, kind)}


def test_a_pool_is_a_kernel_of_its_own_and_so_is_what_it_reads_if_a_mask_is_kept():
    args = f32(64, 16, 16, 128), f32(3, 3, 128, 128), f32(3, 3, 128, 256)
    trained = simulated(gradient(pool_between, 1, 2), *args, device="tpu_v5e")
    passed = simulated(pool_between, *args, device="tpu_v5e")
    for run, apart in ((trained, True), (passed, False)):
        products, (largest,) = kernels_of(run, "convolution"), kernels_of(run, "maximum")
        assert (largest not in products) == apart
        (pool,) = kernels_of(run, "reduce_window")
        assert pool not in products
        assert pool != largest


def test_a_pool_for_a_convolution_alone_reads_what_is_rounded():
    def written(function) -> float:
        args = f32(64, 32, 32, 128), f32(3, 3, 128, 128), f32(3, 3, 128, 128)
        run = simulated(function, *args, device="tpu_v3")
        (k,) = nodes_of(run, "maximum")
        buffer = run.graph.write_buffer[run.graph.write_ptr[k]]
        return float(run.buffers.bytes[buffer])

    kept = written(lambda x, w, v: pooled(jax.nn.relu(convolved(x, w))))
    assert written(pool_between) == 0.5 * kept


def test_a_pool_of_sums_reads_them_whole():
    def summed(x, w, v):
        made = jax.nn.relu(convolved(x, w))
        return convolved(jax.lax.reduce_window(made, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), v)

    run = simulated(summed, f32(64, 32, 32, 128), f32(3, 3, 128, 128), f32(3, 3, 128, 128), device="tpu_v3")
    (k,) = nodes_of(run, "maximum")
    assert run.buffers.bytes[run.graph.write_buffer[run.graph.write_ptr[k]]] == 4 * 64 * 32 * 32 * 128


def test_images_are_copied_before_they_are_flattened_where_features_fill_the_lanes():
    def seconds(images: int, features: int) -> float:
        args = f32(images, 8, 8, features), f32(3, 3, features, features), f32(64 * features, 128)
        run = simulated(flattened, *args, device="tpu_v5e")
        (product,) = nodes_of(run, "dot_general")
        return 1e6 * float(run.node_s[product])

    assert seconds(64, 256) > seconds(128, 256) + 2
    assert seconds(64, 32) < seconds(128, 32)
