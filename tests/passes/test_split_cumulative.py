"""Do cumulative sums, products and extremes along a tiled dim exchange totals only, and come out the same?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
COLUMNS = ap.ManualPartition({"x": 1}, axis="a")
X = np.random.default_rng(0).integers(-9, 9, (4, 2048)).astype(np.float32)

GPUS = ap.Mesh({"a": 4, "b": 2}, device="h100")
"""For these jax writes a cumulative sum as one op, chlo.scan, from 0.11.2 on."""

FORMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sum": lambda x: lax.cumsum(x, 1),
    "sum from the end": lambda x: lax.cumsum(x, 1, reverse=True),
    "sum of integers": lambda x: jnp.cumsum(x.astype(jnp.int32), 1),
    "sum down the rows": lambda x: jnp.cumsum(x.T, 0),
    "sum of one row": lambda x: jnp.cumsum(x[0]),
    "product": lambda x: lax.cumprod(jnp.sign(x) + (x == 0), 1),
    "maximum": lambda x: lax.cummax(x, 1),
    "minimum from the end": lambda x: lax.cummin(x, 1, reverse=True),
    "gradient": lambda x: jax.grad(lambda x: jnp.sum(lax.cumsum(x, 1) * x))(x),
    "places in queues": lambda x: jnp.cumsum(jax.nn.one_hot(jnp.abs(x[0]).astype(int), 8, dtype=jnp.int32), 0),
}


@pytest.mark.parametrize("mesh", [MESH, GPUS], ids=["any", "gpus"])
@pytest.mark.parametrize("name", FORMS)
def test_tiles_of_the_dim_give_the_same_numbers(name: str, mesh: ap.Mesh):
    fun = FORMS[name]
    low = ap.jit(fun, mesh, [COLUMNS]).lower(X)
    np.testing.assert_array_equal(np.asarray(low.compile()(X)), np.asarray(jax.jit(fun)(X)))
    assert sum(row.bytes for row in low.metadata.gathered) <= X.nbytes / 8


def test_sums_of_floats_are_rounded_a_few_times_only():
    x = np.random.default_rng(1).normal(size=(4, 4096)).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64), 1)
    found = np.asarray(ap.jit(FORMS["sum"], MESH, [COLUMNS])(x))
    assert np.abs(found - exact).max() <= 8 * np.finfo(np.float32).eps * np.abs(exact).max()


SCAN = """
func.func @main(%x: tensor<4x2048xf32>) -> (tensor<4x2048xf32>, tensor<4xf32>) {
  %z = stablehlo.constant dense<START> : tensor<4xf32>
  %y, %last = "chlo.scan"(%x, %z) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %c = stablehlo.add %a, %b : tensor<4xf32>
    stablehlo.return %c, %c : tensor<4xf32>, tensor<4xf32>
  }) {dimension = 1 : i64, is_associative = true, is_reverse = REVERSE, operandSegmentSizes = array<i32: 1, 1>,
      resultSegmentSizes = array<i32: 1, 1>}
      : (tensor<4x2048xf32>, tensor<4xf32>) -> (tensor<4x2048xf32>, tensor<4xf32>)
  return %y, %last : tensor<4x2048xf32>, tensor<4xf32>
}"""


def loaded_scan(path, start: str, reverse: str) -> ap.Lowered:
    path.write_text(SCAN.replace("START", start).replace("REVERSE", reverse))
    return ap.jit(ap.load(path), MESH, [ap.ManualPartition({"arg0": 1}, axis="a")]).lower()


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_a_scan_along_a_long_tiled_dim_runs_in_groups_and_its_last_sums_are_there(tmp_path, reverse: str):
    low = loaded_scan(tmp_path / "scan.mlir", "0.0", reverse)
    assert sum(row.bytes for row in low.metadata.gathered) <= X.nbytes / 8
    left, last = low.compile()(X)
    turned = slice(None, None, -1) if reverse == "true" else slice(None)
    np.testing.assert_array_equal(left, np.cumsum(X[:, turned], 1)[:, turned])
    np.testing.assert_array_equal(last, X.sum(1))


def test_a_scan_that_begins_with_something_stays_whole_and_is_refused_on_devices_that_have_none(tmp_path):
    low = loaded_scan(tmp_path / "scan.mlir", "1.0", "false")
    assert [row.kind for row in low.metadata.gathered] == ["chlo.scan"]
    with pytest.raises(ap.CallError, match=r"(?s)lowered for cuda or rocm, and the devices are cpu.*chlo.scan"):
        low.compile()


def windows(fun: Callable[..., jax.Array], *args: object) -> int:
    program = ap.jit(fun, MESH, []).lower(*args).program.program
    return sum(program.spec(op).kind == "reduce_window" for op in range(program.op_count))


def test_short_dims_and_other_windows_stay_as_they_are():
    assert windows(FORMS["sum"], X) == 2
    assert windows(FORMS["sum"], X[:, :512]) == 1

    def started(x, start):
        return lax.reduce_window(x, start, lax.add, (1, 2048), (1, 1), ((0, 0), (2047, 0)))

    def pooled(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, 1024), (1, 1), ((0, 0), (1023, 0)))

    assert windows(started, X, np.float32(1)) == 1
    assert windows(pooled, X) == 1
