"""Is a matrix that a device has of a batch turned as a matrix, which XLA folds into the product that makes it?"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap


def gradient(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.einsum("etf,etd->efd", y, x).transpose(0, 2, 1)


@pytest.mark.parametrize(("experts", "dims"), [(4, 2), (8, 3)])
def test_a_batch_of_one_is_no_dim_of_a_transpose(experts: int, dims: int):
    shapes = jax.ShapeDtypeStruct((experts, 16, 8), "f4"), jax.ShapeDtypeStruct((experts, 16, 12), "f4")
    lowered = ap.jit(gradient, ap.Mesh({"e": 4}), [ap.ManualPartition({"x": 0}, axis="e")]).lower(*shapes)
    turned = re.findall(r"stablehlo.transpose.*dims = \[([\d, ]*)\]", lowered.as_text("stablehlo"))
    assert [len(each.split(",")) for each in turned] == [dims]


def test_what_is_turned_along_divided_dims_alone_is_as_it_was():
    x = np.arange(4 * 2 * 6, dtype=np.float32).reshape(4, 2, 6)
    mesh = ap.Mesh({"e": 4, "f": 2})
    tiles = [ap.ManualPartition({"x": 0}, axis="e"), ap.ManualPartition({"x": 1}, axis="f")]
    for order in [(1, 0, 2), (2, 1, 0), (2, 0, 1), (0, 2, 1)]:
        f = ap.jit(lambda x, order=order: 2 * x.transpose(order), mesh, tiles)
        np.testing.assert_array_equal(f(x), 2 * x.transpose(order))
