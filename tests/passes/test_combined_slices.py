"""Is what is computed of slices, and joined again, computed over all places, in tiles, with the same numbers?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 2, "b": 4})
R = np.random.default_rng(0)
X = R.normal(size=(4, 64, 8)).astype("f4")
W = R.uniform(0.5, 1, size=(4, 64, 8)).astype("f4")
TILED = [
    ap.ManualPartition({"x": 0, "w": 0}, axis="a", name="rows"),
    ap.ManualPartition({"x": 1, "w": 1}, axis="b", name="places"),
]


def _recurrence(x: jax.Array, w: jax.Array, *, reverse: bool = False) -> jax.Array:
    def after(first: tuple[jax.Array, ...], then: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return first[0] * then[0], then[0] * first[1] + then[1]

    return lax.associative_scan(after, (w, x), axis=1, reverse=reverse)[1]


COMBINED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "a linear recurrence": _recurrence,
    "one from the end": lambda x, w: _recurrence(x, w, reverse=True),
    "a filter": lambda x, w: jnp.concatenate([x[:, :1], x[:, 1:] - 0.97 * w[:, 1:] * x[:, :-1]], 1),
    "one with its start at zero": lambda x, w: jnp.concatenate([jnp.zeros_like(x[:, :2]), x[:, 2:] * w[:, :-2]], 1),
    "one that ends early": lambda x, w: jnp.concatenate([jnp.tanh(x[:, :-1] + w[:, 1:]), w[:, -1:]], 1),
    "padded differences": lambda x, w: jnp.pad(jnp.square(x[:, 1:] - x[:, :-1]), ((0, 0), (0, 1), (0, 0))) * w,
    "padded by a number": lambda x, w: jnp.pad(x[:, 1:] * w[:, 1:], ((0, 0), (1, 0), (0, 0)), constant_values=3.0),
}
QUICK = ("a linear recurrence", "a filter", "padded differences")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in COMBINED])
def test_what_is_computed_of_slices_moves_rows_between_neighbours_and_keeps_the_numbers(name: str):
    fun = COMBINED[name]

    def both(x: jax.Array, w: jax.Array) -> object:
        return jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(fun(x, w))), (0, 1))(x, w)

    step = ap.jit(both, MESH, TILED)
    gathered = [g for g in step.lower(X, W).metadata.gathered if g.kind in ("slice", "pad", "concatenate", "multiply")]
    assert sum(g.bytes for g in gathered) <= X.nbytes / 4, gathered
    for got, want in zip(jax.tree.leaves(step(X, W)), jax.tree.leaves(jax.jit(both)(X, W)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


KEPT: dict[str, Callable[[jax.Array, jax.Array], object]] = {
    "halves": lambda x, w: jnp.concatenate([x[:, :32] * 2, x[:, 32:] + w[:, 32:]], 1),
    "many results of one place": lambda x, w: jnp.concatenate([x[:, k : k + 1] * w[:, k : k + 1] for k in range(8)], 1),
    "another place's number": lambda x, w: jnp.concatenate([x[:, :1], jnp.flip(x[:, 1:] * w[:, 1:], 1)], 1),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_would_be_computed_twice_or_many_times_stays(name: str):
    fun = KEPT[name]
    program = ap.jit(lambda x, w: fun(x, w), MESH, []).lower(X, W).program.program
    kinds = [spec.kind for spec in program.specs]
    assert "select" not in kinds
    assert "concatenate" in kinds


def test_what_somebody_else_reads_too_is_computed_once():
    def fun(x: jax.Array, w: jax.Array) -> object:
        d = x[:, 1:] * w[:, :-1]
        return jnp.concatenate([x[:, :1], d], 1), jnp.sort(d, 1)

    step = ap.jit(fun, MESH, TILED)
    program = step.lower(X, W).program.program
    assert [program.spec(op).kind for op in range(program.op_count)].count("multiply") == 1
    for got, want in zip(step(X, W), jax.jit(fun)(X, W), strict=True):
        np.testing.assert_array_equal(got, want)
