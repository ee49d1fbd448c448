"""Where rows that an exchange brought meet the array that they were merged from, are they exchanged back?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"a": 2, "b": 4})
R = np.random.default_rng(0)
X, W = R.normal(size=(8, 16, 8)).astype("f4"), R.normal(size=(8, 8)).astype("f4")
TILED = [ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"x": 1}, axis="b")]


def _merged(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x.reshape(-1, 8) @ w).reshape(x.shape)


PROGRAMS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "a residual": lambda x, w: x + _merged(x, w),
    "before it": lambda x, w: _merged(x, w) * x,
    "by way of arithmetic with constants": lambda x, w: x + (1 - 2 * jnp.where(_merged(x, w) > 0, 3.0, _merged(x, w))),
    "two in a row": lambda x, w: (lambda h: h + _merged(h, w))(x + _merged(x, w)),
    "straight through": lambda x, w: x + jax.lax.stop_gradient(_merged(x, w) - x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_merged_rows_are_exchanged_back(name: str):
    fun = PROGRAMS[name]
    step = ap.jit(fun, MESH, TILED)
    low = step.lower(X, W)
    assert low.program.collectives()["all_gather"] == 0, low.metadata.gathered
    assert not low.metadata.gathered
    assert not any(tactic.conflicts for tactic in low.metadata.tactics)
    np.testing.assert_allclose(step(X, W), jax.jit(fun)(X, W), rtol=1e-5, atol=1e-5)


def test_gradients_too():
    fun = jax.grad(lambda x, w: jnp.sum(PROGRAMS["two in a row"](x, w) ** 2), (0, 1))
    step = ap.jit(fun, MESH, TILED)
    assert step.lower(X, W).program.collectives()["all_gather"] == 0
    for want, got in zip(jax.jit(fun)(X, W), step(X, W), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_two_tiles_of_arguments_stay_a_conflict():
    low = ap.jit(lambda x, y: x + y, MESH, [ap.ManualPartition({"x": 0, "y": 1}, axis="a")]).lower(X, X)
    assert low.metadata.tactics[0].conflicts
