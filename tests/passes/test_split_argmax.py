"""Is the position of an extreme found without a gather, where the reduced dim is tiled, and is it the same position?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.passes.groups import LEAST

MESH = ap.Mesh({"a": 4, "b": 2})
COLUMNS = ap.ManualPartition({"x": 1}, axis="a", name="columns")
RNG = np.random.default_rng(0)
X = RNG.integers(-9, 9, (4, LEAST)).astype(np.float32)
"""Each extreme is there many times."""
ODD = X.copy()
ODD[0, 700], ODD[0, 5], ODD[1], ODD[2, 900], ODD[3, 40] = np.nan, np.nan, -np.inf, np.inf, -0.0

FORMS = {
    "argmax": lambda x: jnp.argmax(x, axis=1),
    "argmin": lambda x: jnp.argmin(x, axis=1),
    "turned": lambda x: jnp.argmax(x.T, axis=0) + 1,
    "integers": lambda x: jnp.argmin(jnp.nan_to_num(x).astype(jnp.int32), axis=-1),
    "half": lambda x: jnp.argmax(x.astype(jnp.bfloat16), axis=-1),
    "in a loop": lambda x: jax.lax.fori_loop(
        0, 3, lambda i, p: p + jnp.argmax(x + p[:, None], axis=1), jnp.zeros(4, int)
    ),
    "made by a matmul": lambda x: jnp.argmax(jnp.eye(4) @ jnp.nan_to_num(x), axis=-1),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("x", [X, ODD], ids=["ties", "not numbers"])
def test_tiles_of_the_reduced_dim_give_the_same_position_by_two_small_reductions(name, x):
    fun = FORMS[name]
    low = ap.jit(fun, MESH, [COLUMNS]).lower(x)
    runs = 3 if name == "in a loop" else 1
    assert +low.program.collectives() == {"all_reduce": 2 * runs}
    np.testing.assert_array_equal(low.compile()(x), jax.jit(fun)(x))


def regions(fun, *args):
    program = ap.jit(fun, MESH, []).lower(*args).program.program
    return {spec.region for spec in program.specs if spec.kind == "reduce"}


def test_short_dims_and_other_pairs_stay_as_they_are():
    assert regions(FORMS["argmax"], X[:, :64]) == {"argmax"}
    assert regions(FORMS["argmax"], X) == {"max", "min"}

    def later(x):
        """The last of equal ones."""
        pairs = (x, jax.lax.broadcasted_iota(jnp.int32, x.shape, 1))

        def pick(a, b):
            left = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] > b[1]))
            return jnp.where(left, a[0], b[0]), jnp.where(left, a[1], b[1])

        return jax.lax.reduce(pairs, (jnp.float32(-jnp.inf), jnp.int32(0)), pick, (1,))

    assert regions(later, X) == {"opaque"}
