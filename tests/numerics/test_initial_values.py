"""Does an initial value count once, and for sure, however small the parts of a reduction are?

max of [1, 2], from 3        in two parts of one element each        3, though XLA drops an init of one element
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

X = np.random.default_rng(1).integers(-9, 9, (8, 4)).astype("f4")
REDUCERS: dict[str, tuple[Callable, tuple[float, ...]]] = {
    "max": (lax.max, (20, -20, -np.inf)),
    "min": (lax.min, (-20, 20, np.inf)),
    "add": (lax.add, (5, 0)),
    "mul": (lax.mul, (3, 1, 0)),
}
EIGHT = ap.Mesh({"a": 8})
TWO_BY_FOUR = ap.Mesh({"a": 2, "b": 4})


def equal(fun, mesh: ap.Mesh, *args) -> None:
    """Tiled on dim 0 over all axes, the program computes what it computes whole."""
    schedule = [ap.ManualPartition({"x": 0}, axis=axis) for axis in mesh.axis_names]
    for a, b in zip(
        jax.tree.leaves(jax.jit(fun)(*args)), jax.tree.leaves(ap.jit(fun, mesh, schedule)(*args)), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mesh", [EIGHT, TWO_BY_FOUR], ids=["8", "2x4"])
@pytest.mark.parametrize("name", REDUCERS)
def test_a_reduction_in_parts_of_one_row_counts_its_initial_value_once(name: str, mesh: ap.Mesh):
    reducer, inits = REDUCERS[name]

    def fun(x, start):
        known = [lax.reduce(x, x.dtype.type(init), reducer, dims) for init in inits for dims in ((0,), (0, 1))]
        return known, [lax.reduce(x, start.astype(x.dtype), reducer, (0,))]

    equal(fun, mesh, X, np.float32(inits[0]))


@pytest.mark.parametrize("name", REDUCERS)
def test_a_window_over_the_whole_dim_counts_its_initial_value_once(name: str):
    reducer, inits = REDUCERS[name]

    def fun(x, start):
        padded = ((0, 0), (1, 0))
        return [
            lax.reduce_window(x, init, reducer, (8, 2), (1, 1), padding)
            for init in (*map(np.float32, inits), start)
            for padding in ("VALID", padded)
        ]

    equal(fun, EIGHT, X, np.float32(inits[0]))


def test_scatters_of_one_element_per_device_count_what_they_add_to_once():
    def fun(x, base):
        rows = jnp.arange(8) % 3
        return base.at[rows].add(x), base.at[rows].max(x), base.at[rows].mul(x)

    equal(fun, EIGHT, X, np.full((3, 4), 2, "f4"))


def test_windows_of_one_element_per_device_scatter_their_gradient():
    def fun(x):
        return jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), "VALID").sum())(x)

    equal(fun, EIGHT, X)


def test_cumulative_ops_of_one_row_per_device():
    equal(lambda x: [f(x, axis=1) for f in (jnp.cumsum, jnp.cumprod, lax.cummax, lax.cummin)], EIGHT, X)


def test_bools_and_narrow_types_reduce_in_parts_of_one_row():
    def fun(x):
        return [
            (x > 0).any(0),
            (x > 0).all(0),
            lax.reduce(x > 0, np.bool_(True), lax.bitwise_or, (0,)),
            lax.reduce(x > 0, np.bool_(False), lax.bitwise_and, (0,)),
            lax.reduce(x.astype(jnp.uint8), np.uint8(200), lax.max, (0,)),
            lax.reduce(x.astype(jnp.int8), np.int8(-100), lax.min, (0,)),
            lax.reduce(x.astype(jnp.bfloat16), jnp.bfloat16(50), lax.max, (0,)),
        ]

    equal(fun, EIGHT, abs(X))
