"""Do ops that are equal in kind, types and loops keep their own operands' values apart?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap
from tests.models.case import MESH


def test_sums_from_different_initial_values_differ():
    def f(x):
        return [jax.lax.reduce(x, np.float32(start), jax.lax.add, (0,)) for start in (0.0, 1.0, 0.0, 2.0)]

    x = jnp.arange(32.0).reshape(8, 4)
    for found, expected in zip(ap.jit(f, MESH, [ap.ManualPartition({"x": 0}, axis="batch")])(x), f(x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_equal_layers_read_their_own_weights():
    def f(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    keys = jax.random.split(jax.random.key(0), 4)
    weights, x = [jax.random.normal(k, (8, 8)) for k in keys], jnp.ones((4, 8))
    schedule = [ap.ManualPartition({"x": 0}, axis="batch"), ap.ManualPartition({"weights": 1}, axis="model")]
    np.testing.assert_allclose(ap.jit(f, MESH, schedule)(weights, x), f(weights, x), rtol=1e-4)
