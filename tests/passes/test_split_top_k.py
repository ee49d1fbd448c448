"""Are the largest of a row found without a gather of it, where it is tiled, and are they the same ones?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
X = np.random.default_rng(0).integers(-9, 9, (4, 4096)).astype(np.float32)
"""Each number is there many times."""
ODD = X.copy()
ODD[0, 700], ODD[0, 5], ODD[1], ODD[2, 900], ODD[3, 40] = np.nan, np.nan, -np.inf, np.inf, -0.0

FORMS: dict[str, Callable[[jax.Array], object]] = {
    "rows": lambda x: lax.top_k(x, 3),
    "one row": lambda x: lax.top_k(x[0], 2),
    "rows of rows": lambda x: lax.top_k(x.reshape(2, 2, 4096), 3),
    "integers": lambda x: lax.top_k(jnp.nan_to_num(x).astype(jnp.int32), 4),
    "half": lambda x: lax.top_k(x.astype(jnp.bfloat16), 4),
    "gradient": lambda x: jax.grad(lambda x: jnp.sum(lax.top_k(x, 3)[0] ** 2))(jnp.nan_to_num(x)),
}


def kinds(fun: Callable[[jax.Array], object], x: np.ndarray) -> list[str]:
    program = ap.jit(fun, MESH, []).lower(x).program.program
    return [program.spec(op).kind for op in range(program.op_count)]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("x", [X, ODD], ids=["ties", "not numbers"])
def test_tiles_of_the_row_give_the_same_values_and_positions(name: str, x: np.ndarray):
    fun = FORMS[name]
    low = ap.jit(fun, MESH, [ap.ManualPartition({"x": 1}, axis="a")]).lower(x)
    for got, want in zip(jax.tree.leaves(low.compile()(x)), jax.tree.leaves(jax.jit(fun)(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(want, np.float64))


def test_devices_exchange_what_their_groups_put_forward():
    low = ap.jit(FORMS["rows"], MESH, [ap.ManualPartition({"x": 1}, axis="a")]).lower(X)
    assert sum(row.bytes for row in low.metadata.gathered) <= X.nbytes / 4
    assert not any("tensor<4x4096xf32>" in line and "all_" in line for line in low.as_text("hlo").splitlines())


def test_short_rows_and_many_of_a_row_stay_as_they_are():
    assert kinds(FORMS["rows"], X).count("chlo.top_k") == 2
    assert kinds(FORMS["rows"], X[:, :2048]).count("chlo.top_k") == 1
    assert kinds(lambda x: lax.top_k(x, 100), X).count("chlo.top_k") == 2
    assert kinds(lambda x: lax.top_k(x, 400), X).count("chlo.top_k") == 1
    assert kinds(FORMS["rows"], X[:, :4093]).count("chlo.top_k") == 1
