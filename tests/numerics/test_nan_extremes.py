"""Is the max or min of a tiled array NaN where an element is, as on one device?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
ROWS = [ap.ManualPartition({"x": 0}, axis="a")]
BOTH = [ap.ManualPartition({"x": 0}, axis=("a", "b"))]
SCATTERED = [*ROWS, ap.ManualPartition({"outputs/0": 0, "outputs/1": 0}, axis="a")]


def extremes(x):
    return x.max(0), x.min(0)


def numbers(dtype, nan_at=()):
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(16, 8)) * 100
        x[0, 2], x[5, 3], x[9, 4], x[:, 6], x[:, 7] = np.inf, -np.inf, -0.0, -5.0, 0.0
        for place in nan_at:
            x[place] = np.nan
        return jnp.asarray(x, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("schedule", [ROWS, BOTH, SCATTERED], ids=["one axis", "two axes", "scattered"])
@pytest.mark.parametrize("nan_at", [(), ((0, 0),), ((7, 0), (15, 1)), ((3, slice(None)),)], ids=["0", "1", "2", "row"])
def test_extremes_over_devices_are_those_of_one_device(nan_at, schedule, dtype):
    x = numbers(dtype, nan_at)
    with jax.enable_x64(True):
        step = ap.jit(extremes, MESH, schedule)
        assert any(step.lower(x).program.collectives().values())
        for found, expected in zip(step(x), jax.jit(extremes)(x), strict=True):
            np.testing.assert_array_equal(np.asarray(found, "f8"), np.asarray(expected, "f8"))


def test_negative_nan_is_nan_too():
    x = np.zeros((16, 8), "f4")
    x.view("u4")[3, 1], x.view("u4")[12, 2] = 0xFFC00001, 0x7FC00001
    for found in ap.jit(extremes, MESH, ROWS)(x):
        assert np.isnan(np.asarray(found)).tolist() == [False, True, True, *[False] * 5]


def test_extremes_in_a_loop_keep_nan():
    def walk(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: jnp.maximum(y, (x * i).max()), jnp.float32(-1e9))

    assert np.isnan(ap.jit(walk, MESH, ROWS)(numbers("float32", [(9, 1)])))


def test_a_step_is_skipped_where_the_largest_gradient_is_not_finite():
    def step(w, x):
        grad = jax.grad(lambda w: (jnp.log(w) * x).sum())(w)
        bad = ~jnp.isfinite(jnp.abs(grad).max())
        return jnp.where(bad, w, w - grad), bad

    w, x = np.ones((16, 8), "f4"), np.ones((16, 8), "f4")
    x[3, 3] = np.nan
    after, bad = ap.jit(step, MESH, [ap.ManualPartition({"w": 0}, axis="a")])(w, x)
    assert bad
    np.testing.assert_array_equal(after, w)
