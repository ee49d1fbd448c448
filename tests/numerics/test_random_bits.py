"""Does each device draw its own part of the random bits, and are they those of the whole?

state -> rng_bit_generator -> bits, next state          by Philox, which `rbg` keys use on CPU and GPU
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"rows": 4, "columns": 2})
ALMOST_OVER = np.array([3, 5, 2**32 - 2, 2**32 - 1], np.uint32)
"""A state whose counter overflows its lower half two draws later."""


def drawn_at_once(lowered: ap.Lowered) -> str:
    """What one device draws: the line of its text."""
    [line] = [line for line in lowered.as_text("hlo").splitlines() if "rng_bit_generator" in line]
    return line


def draw(shape: tuple[int, ...], dtype: str = "uint32"):
    def drawn(state: jax.Array, x: jax.Array):
        following, bits = lax.rng_bit_generator(state, shape, dtype=dtype, algorithm=lax.RandomAlgorithm.RNG_DEFAULT)
        return following, bits.reshape(x.shape) ^ x

    return drawn


def equal_on(fun, schedule, *args) -> ap.Lowered:
    partitioned = ap.jit(fun, MESH, schedule)
    for got, want in zip(partitioned(*args), jax.jit(fun)(*args), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    return partitioned.lower(*args)


@pytest.mark.parametrize(
    ("shape", "dtype", "axes", "local"),
    [
        ((8, 16), "uint32", {0: "rows"}, "2x16xui32"),
        ((8, 3), "uint32", {0: "columns"}, "4x3xui32"),
        ((4, 8, 6), "uint32", {0: "rows", 1: "columns"}, "1x4x6xui32"),
        ((8, 16), "uint8", {0: "rows"}, "2x16xui8"),
        ((1, 8, 4), "uint16", {1: "rows"}, "1x2x4xui16"),
    ],
)
@pytest.mark.parametrize("state", [np.arange(4, dtype=np.uint32), ALMOST_OVER], ids=["", "counter overflows"])
def test_a_slice_is_drawn_alone_and_equal(shape, dtype, axes, local, state):
    schedule = [ap.ManualPartition({"x": dim}, axis=axis) for dim, axis in axes.items()]
    lowered = equal_on(draw(shape, dtype), schedule, state, jnp.ones(shape, dtype))
    assert local in drawn_at_once(lowered)


def test_of_a_dim_that_is_no_stretch_of_the_bits_all_is_drawn_and_sliced():
    schedule = [ap.ManualPartition({"x": 1}, axis="columns")]
    lowered = equal_on(draw((8, 16)), schedule, np.arange(4, dtype=np.uint32), jnp.ones((8, 16), "u4"))
    assert "8x16xui32" in drawn_at_once(lowered)


def test_slices_shorter_than_a_counter_are_not_drawn_apart():
    schedule = [ap.ManualPartition({"x": 0}, axis="rows")]
    lowered = equal_on(draw((8,)), schedule, np.arange(4, dtype=np.uint32), jnp.ones((8,), "u4"))
    assert "tensor<8xui32>" in drawn_at_once(lowered)


def test_draws_follow_each_other_in_a_loop():
    def noisy(state, x):
        def step(state, row):
            state, bits = lax.rng_bit_generator(state, row.shape)
            return state, row + (bits >> 8).astype("float32")

        return lax.scan(step, state, x)

    schedule = [ap.ManualPartition({"x": 1}, axis="rows")]
    equal_on(noisy, schedule, np.arange(4, dtype=np.uint32), jnp.ones((3, 8, 4)))


def test_what_a_tpu_draws_stays_whole_and_says_why():
    mesh = ap.Mesh({"rows": 4, "columns": 2}, device="tpu_v3")
    fun, args = draw((8, 16)), (np.arange(4, dtype=np.uint32), jnp.ones((8, 16), "u4"))
    lowered = ap.jit(fun, mesh, [ap.ManualPartition({"x": 0}, axis="rows")]).lower(*args)
    assert "DEFAULT" in lowered.as_text("stablehlo")
    [gathered] = [g for g in lowered.metadata.gathered if g.kind == "rng_bit_generator"]
    assert "a slice of the bits cannot be drawn" in gathered.reason


def test_dropout_by_rbg_keys_costs_no_collective():
    def dropped(key_data, x):
        key = jax.random.wrap_key_data(key_data, impl="rbg")
        return (x * jax.random.bernoulli(key, 0.9, x.shape),)

    data = jax.random.key_data(jax.random.key(7, impl="rbg"))
    lowered = equal_on(dropped, [ap.ManualPartition({"x": 0}, axis="rows")], data, jnp.ones((8, 4, 16)))
    assert not any(lowered.program.collectives().values())
