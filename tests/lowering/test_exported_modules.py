"""Is the exported module valid where regions, and functions that regions call, are involved?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

X = np.arange(64, dtype="f4").reshape(8, 8)
WHOLE_INSIDE_TILED_OUTSIDE = [
    ap.ManualPartition({"x": ap.REPLICATED}, axis="a"),
    ap.ManualPartition({"outputs": 0}, axis="a"),
]
STORED_SHARDED = [ap.ManualPartition({"x": 0}, axis="a")]


def check(fun, schedule, *args, devices=4):
    step = ap.jit(fun, ap.Mesh({"a": devices}), schedule)
    step.lower(*args).exported.operation.verify()
    for a, b in zip(jax.tree.leaves(jax.jit(fun)(*args)), jax.tree.leaves(step(*args)), strict=True):
        np.testing.assert_array_equal(a, b)


# ---- what is emitted at a branch or loop reads only what dominates it


def branch(x):
    return x * 2, lax.cond(x[0, 0] > 1, lambda v: v, lambda v: jnp.sin(v), x)


def swapped_branch(x):
    return x * 2, lax.cond(x[0, 0] > 1, lambda v: jnp.sin(v), lambda v: v, x)


def several_ways(x):
    return x * 2, lax.switch(x[0, 1].astype("i4"), [jnp.sin, lambda v: v, jnp.cos, lambda v: v + 1], x)


def branch_in_a_branch(x):
    inner = lambda v: lax.cond(v[0, 1] > 0, lambda w: w, lambda w: jnp.sin(w), v)  # noqa: E731
    return x * 2, lax.cond(x[0, 0] > 1, inner, lambda v: jnp.cos(v), x)


def loop(x):
    return x * 2, lax.fori_loop(0, 3, lambda i, v: jnp.where(i == 1, x, v), x)


def loop_with_a_branch(x):
    def body(i, v):
        return lax.cond(i > 1, lambda w: x, lambda w: jnp.sin(w), v)

    return x * 2, lax.fori_loop(0, 3, body, x)


def loop_over_a_sorted_value(x):
    return x + 1, lax.scan(lambda c, r: (jnp.sort(c, axis=0) + x, r @ x), x, x)


def two_loops(x):
    first = lax.fori_loop(0, 2, lambda i, v: jnp.sort(x, 0) + v, x)
    return first, lax.fori_loop(0, 2, lambda i, v: jnp.sort(x, 0) - v, x), jnp.sort(x, 0)


PROGRAMS = [
    branch, swapped_branch, several_ways, branch_in_a_branch, loop, loop_with_a_branch, loop_over_a_sorted_value,
    two_loops,
]  # fmt: skip


@pytest.mark.parametrize("schedule", [WHOLE_INSIDE_TILED_OUTSIDE, STORED_SHARDED], ids=["sliced", "gathered"])
@pytest.mark.parametrize("fun", PROGRAMS, ids=lambda f: f.__name__)
def test_redistributions_at_branches_and_loops_read_what_dominates_them(fun, schedule):
    check(fun, schedule, X / 16)


# ---- functions called from regions


@jax.jit
def _larger(p, q):
    return jnp.where(p > q, p, q)


def argmax_by_where(x):
    def larger(p, q):
        take = p[0] > q[0]
        return jnp.where(take, p[0], q[0]), jnp.where(take, p[1], q[1])

    numbers = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return lax.reduce((x, numbers), (np.float32(-np.inf), np.int32(0)), larger, (1,))


def calls_in_calls(x):
    return lax.reduce(x, np.float32(-np.inf), lambda p, q: _larger(p, _larger(q, p)), (1,))


def window(x):
    return lax.reduce_window(x, np.float32(-np.inf), lambda p, q: _larger(p, q), (1, 2), (1, 2), "VALID")


def loop_in_a_reducer(x):
    def add(p, q):
        return lax.fori_loop(0, 1, lambda i, v: _larger(v, q), p)

    return lax.reduce(x, np.float32(-np.inf), add, (1,))


def called_twice(x):
    return argmax_by_where(x), argmax_by_where(x * 2), jnp.where(x > 3, x, 0)


def in_a_loop(x):
    return lax.fori_loop(0, 2, lambda i, v: v + argmax_by_where(v)[0][:, None], x)


CALLERS = [argmax_by_where, calls_in_calls, window, loop_in_a_reducer, called_twice, in_a_loop]


@pytest.mark.parametrize("fun", CALLERS, ids=lambda f: f.__name__)
def test_functions_called_from_regions_come_along(fun):
    check(fun, STORED_SHARDED, X)


SORT_AND_SCATTER = """
func.func public @main(%x: tensor<8x8xf32> loc("x"), %i: tensor<2x1xi32>, %u: tensor<8x2xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %s = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = func.call @less(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<i1>
    "stablehlo.return"(%p) : (tensor<i1>) -> ()
  }) {dimension = 1 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = func.call @least(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%p) : (tensor<f32>) -> ()
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1],
      scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}
    : (tensor<8x8xf32>, tensor<2x1xi32>, tensor<8x2xf32>) -> tensor<8x8xf32>
  return %s, %t : tensor<8x8xf32>, tensor<8x8xf32>
}
func.func public @less(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {
  %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %p : tensor<i1>
}
func.func private @least(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %p = func.call @less(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %r = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
  return %r : tensor<f32>
}
"""


def test_a_file_whose_comparator_and_scatter_call_functions_runs_partitioned(tmp_path):
    path = tmp_path / "calls.mlir"
    path.write_text(SORT_AND_SCATTER)
    x, i, u = X[::-1, ::-1].copy(), np.array([[1], [6]], "i4"), np.full((8, 2), 20, "f4")
    low = ap.jit(ap.load(str(path)), ap.Mesh({"a": 4}), STORED_SHARDED).lower(x, i, u)
    ordered, least = low.compile()(x, i, u)
    expected = x.copy()
    expected[:, [1, 6]] = np.minimum(x[:, [1, 6]], 20)
    np.testing.assert_array_equal(ordered, np.sort(x, axis=1))
    np.testing.assert_array_equal(least, expected)
    names = [str(op.attributes["sym_name"]) for op in low.exported.body.operations]
    assert names == ['"main"']
    assert "call" not in low.as_text("stablehlo")


def test_a_reducer_with_a_call_whose_result_is_not_needed_runs():
    larger = jax.jit(jnp.maximum)

    def fun(x):
        most = lax.reduce(x, np.float32(-np.inf), lambda a, b: larger(a, b) + 0, (0,))
        return most[:0] * 2, x * 2

    empty, twice = ap.jit(fun, ap.Mesh({"a": 4}), [ap.ManualPartition({"x": 1}, axis="a")])(np.ones((6, 4), "f4"))
    assert empty.shape == (0,)
    np.testing.assert_array_equal(twice, 2)
