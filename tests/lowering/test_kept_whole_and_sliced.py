"""Is a value that is kept whole, and of which only slices are used, ever made whole?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap
from autopart.spmd.verify_local import verify

MESH = ap.Mesh({"batch": 4, "model": 2})
RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 16)).astype("f4")
KEEP = ap.ManualPartition({"kept": ap.REPLICATED}, axis="batch")
OUT = ap.ManualPartition({"outputs": 1}, axis="batch")
ROWS = ap.ManualPartition({"x": 0}, axis="batch")


def collectives(fun, schedule, x=X):
    """Counts of collectives; the numbers are checked on the way."""
    step = ap.jit(fun, MESH, schedule)
    low = step.lower(x)
    verify(low.program)
    np.testing.assert_allclose(jax.jit(fun)(x), step(jnp.array(x)), rtol=1e-5, atol=1e-6)
    return dict(+low.program.collectives())


def test_one_that_its_user_tiles_on_another_dim_is_exchanged():
    def fun(x):
        return jnp.tanh(ap.tag("kept", jnp.exp(x)))

    assert collectives(fun, [KEEP, ROWS, OUT]) == {"all_to_all": 1}


def test_one_that_all_users_tile_alike_is_exchanged_once():
    def fun(x):
        kept = ap.tag("kept", jnp.exp(x))
        return jnp.tanh(kept) + jnp.sin(kept).at[0].mul(2.0)

    assert collectives(fun, [KEEP, ROWS, OUT]) == {"all_to_all": 1}


def test_one_that_its_user_tiles_as_it_was_made_stays_there():
    keep_out = ap.ManualPartition({"outputs": 0}, axis="batch")
    assert collectives(lambda x: jnp.tanh(ap.tag("kept", jnp.exp(x))), [KEEP, ROWS, keep_out]) == {}


def test_one_that_another_axis_tiles_as_well_is_made_whole_where_both_do_not_divide_it():
    keep_out = ap.ManualPartition({"outputs": 0}, axis="batch")
    both = [KEEP, ROWS, keep_out, ap.ManualPartition({"kept": 0}, axis="model")]
    twelve = RNG.normal(size=(12, 6)).astype("f4")
    made_whole = collectives(lambda x: jnp.tanh(ap.tag("kept", jnp.exp(x))), both, twelve)
    assert made_whole.pop("all_gather") >= 1
    assert collectives(lambda x: jnp.tanh(ap.tag("kept", jnp.exp(x))), both).get("all_gather", 0) <= 1


def test_a_sum_that_its_user_slices_is_scattered():
    def fun(x):
        return jnp.tanh(ap.tag("kept", x.T @ x))

    assert collectives(fun, [KEEP, ROWS, OUT]) == {"reduce_scatter": 1}


def test_one_that_is_also_read_whole_is_gathered_once():
    def fun(x):
        kept = ap.tag("kept", jnp.exp(x))
        return jnp.tanh(kept) + jnp.sort(kept, axis=1)[:, ::-1]

    assert collectives(fun, [KEEP, ROWS, OUT]) == {"all_gather": 1}
