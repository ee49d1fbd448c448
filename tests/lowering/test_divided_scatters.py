"""Is the gradient of a look-up made in tiles, where that moves less than to reduce it?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
ROWS = 64
R = np.random.default_rng(0)
TABLE, TOKENS = R.normal(size=(ROWS, 8)).astype("f4"), R.integers(-2, ROWS + 2, (8, 4)).astype("i4")
BP, FSDP = ap.ManualPartition({"tokens": 0}, axis="a"), ap.ManualPartition({"table": 0, "outputs": 0}, axis="a")
WHOLE = ap.ManualPartition({"table": ap.REPLICATED}, axis="a")


def _gradient(table: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.exp(jax.grad(lambda t: jnp.sum(jnp.sin(t[tokens]) ** 2))(table))


def _collectives(fun: Callable[..., jax.Array], tactics: list[ap.Tactic], tokens: np.ndarray) -> dict[str, int]:
    step = ap.jit(fun, MESH, tactics)
    np.testing.assert_allclose(step(TABLE, tokens), jax.jit(fun)(TABLE, tokens), rtol=1e-4, atol=1e-5)
    return dict(+step.lower(TABLE, tokens).program.collectives())


def test_few_updates_are_gathered_and_each_device_adds_those_of_its_rows():
    sharded = [BP, WHOLE, ap.ManualPartition({"outputs": 0}, axis="a")]
    assert _collectives(_gradient, sharded, TOKENS) == {"all_gather": 2}


def test_a_gradient_smaller_than_its_updates_is_reduced():
    sharded = [BP, WHOLE, ap.ManualPartition({"outputs": 0}, axis="a")]
    assert _collectives(_gradient, sharded, np.tile(TOKENS, (1, 8))) == {"reduce_scatter": 1}


def test_a_gradient_that_is_read_whole_is_reduced():
    assert _collectives(_gradient, [BP, WHOLE], TOKENS) == {"all_reduce": 1}


def test_a_sum_that_goes_on_to_another_is_reduced_with_it():
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        def loss(table: jax.Array) -> jax.Array:
            return jnp.sum(jnp.tanh(jnp.sin(table[tokens]) @ table.T))

        return jnp.exp(jax.grad(loss)(table))

    assert _collectives(fun, [BP, FSDP], TOKENS)["reduce_scatter"] == 1 + 1, "of what is looked up, and of the gradient"


def test_columns_on_another_axis_stay_where_they_are():
    sharded = [BP, ap.ManualPartition({"table": 1}, axis="b"), WHOLE, ap.ManualPartition({"outputs": 0}, axis="a")]
    assert _collectives(_gradient, sharded, TOKENS) == {"all_gather": 2}
