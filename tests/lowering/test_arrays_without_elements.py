"""Are arrays without elements left whole, whatever dims of theirs an axis would divide?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.base.errors import TileError

MESH = ap.Mesh({"a": 2, "b": 4})


def empty(*shape: int) -> np.ndarray:
    return np.zeros(shape, "f4")


def check(fun, decisions, *args):
    """The program's outputs and their shardings are right; returns where the inputs live."""
    step = ap.jit(fun, MESH, [ap.ManualPartition(decisions, axis=axis) for axis in MESH.axis_names])
    low = step.lower(*args)
    for a, b in zip(jax.tree.leaves(jax.jit(fun)(*args)), jax.tree.leaves(step(*args)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(not any(spec) for value, spec in _specs(low) if 0 in value)
    return low.metadata.in_specs


def _specs(low):
    program = low.traced.program
    inputs = zip(program.arguments, low.metadata.in_specs.values(), strict=True)
    outputs = zip(program.outputs, low.metadata.out_specs.values(), strict=True)
    return [(program.type_of(v).shape, spec) for v, spec in (*inputs, *outputs)]


@pytest.mark.parametrize("decision", [0, ap.FIRST_DIVISIBLE_DIM, lambda path, shape: 0])
@pytest.mark.parametrize("key", ["*", "[xy]"])
def test_a_glob_passes_over_them(key: str, decision):
    specs = check(lambda x, y: (x * 2, x.sum() + y), {key: decision}, empty(8, 0), np.ones((8, 8), "f4"))
    assert specs["x"] == ()
    assert specs["y"][0] == ("a", "b")


def test_an_argument_tree_passes_over_them():
    specs = check(
        lambda params: jax.tree.map(lambda v: v + 1, params),
        {"params": 0},
        {"e": empty(8, 0), "w": np.ones((8,), "f4")},
    )
    assert specs == {"params/e": (), "params/w": (("a", "b"),)}


@pytest.mark.parametrize(
    ("fun", "shape"),
    [
        (lambda x: x * 2, (8, 0)),
        (lambda x: jnp.linalg.cholesky(x), (1000, 0, 0)),
        (lambda x: jnp.fft.fft(x), (16, 24, 0, 17)),
    ],
)
def test_naming_one_is_an_error_that_says_so(fun, shape):
    with pytest.raises(TileError, match="it has no elements"):
        ap.jit(fun, MESH, [ap.ManualPartition({"x": 0}, axis="a")]).lower(empty(*shape))


def test_the_first_divisible_dim_of_one_is_none():
    assert check(lambda x: x * 2, {"x": ap.FIRST_DIVISIBLE_DIM}, empty(8, 0)) == {"x": ()}


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: (x[:, :0], x + 1),
        lambda x: x[:, :0].sum(1) + x.sum(1),
        lambda x: jnp.concatenate([x[:, :0], x], 1),
        lambda x: (x[:0], jnp.linalg.cholesky(jnp.zeros((8, 0, 0)) + x[:, 0, None, None][:, :0, :0])),
    ],
    ids=["slice", "sum", "concatenate", "cholesky"],
)
def test_propagation_stops_at_them(fun):
    assert check(fun, {"x": 0}, np.arange(24, dtype="f4").reshape(8, 3)) == {"x": (("a", "b"),)}
