"""Is a table that is stored in parts looked up in parts, where that moves less than to gather it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
ROWS = 64
R = np.random.default_rng(0)
TABLE, TOKENS = R.normal(size=(ROWS, 8)).astype("f4"), R.integers(-2, ROWS + 2, (8, 4)).astype("i4")
BP, FSDP = ap.ManualPartition({"tokens": 0}, axis="a"), ap.ManualPartition({"table": 0}, axis="a")


def _looked_up(table: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.tanh(table[tokens])


def _collectives(
    fun: Callable[..., jax.Array], tactics: Sequence[ap.Tactic], tokens: np.ndarray, **options: Any
) -> dict[str, int]:
    step = ap.jit(fun, MESH, list(tactics), **options)
    np.testing.assert_allclose(step(TABLE, tokens), jax.jit(fun)(TABLE, tokens), rtol=1e-6)
    return dict(step.lower(TABLE, tokens).program.collectives())


def test_few_rows_are_summed_where_they_are_read():
    assert _collectives(_looked_up, [BP, FSDP], TOKENS) == {"all_gather": 1, "reduce_scatter": 1}


def test_rows_of_a_table_that_was_cast_are_summed():
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return table.astype(jnp.bfloat16)[tokens].astype(jnp.float32)

    assert _collectives(fun, [BP, FSDP], TOKENS) == {"all_gather": 1, "reduce_scatter": 1}


def test_table_that_was_computed_is_gathered():
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return jnp.tanh(table)[tokens]

    assert _collectives(fun, [BP, FSDP], TOKENS) == {"all_gather": 1}


def test_table_smaller_than_what_is_looked_up_is_gathered():
    assert _collectives(_looked_up, [BP, FSDP], np.tile(TOKENS, (1, 8))) == {"all_gather": 1}


def test_columns_on_another_axis_stay_where_they_are():
    tactics = [BP, ap.ManualPartition({"table": 1}, axis="b"), FSDP]
    assert _collectives(_looked_up, tactics, TOKENS) == {"all_gather": 1, "reduce_scatter": 1}


def test_gather_that_uses_share_is_not_undone():
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return table[tokens] + table[tokens + 1]

    options = ap.LoweringOptions(share_within=100)
    assert _collectives(fun, [BP, FSDP], TOKENS, options=options) == {"all_gather": 1}


@pytest.mark.parametrize(("within", "shared"), [(0, False), (3, False), (100, True)])
def test_gather_that_no_use_is_near_enough_to_share_is_undone(within: int, shared: bool):
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        found = table[tokens]
        for _ in range(8):
            found = jnp.sin(found)
        return found + table[tokens + 1]

    found = _collectives(fun, [BP, FSDP], TOKENS, options=ap.LoweringOptions(share_within=within))
    assert ("reduce_scatter" not in found) == shared


@pytest.mark.parametrize("within", [0, 100])
def test_product_that_gathers_the_table_turned_shares_its_gather_with_a_near_look_up(within: int):
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return table[tokens] @ table.T

    found = _collectives(fun, [BP, FSDP], TOKENS, options=ap.LoweringOptions(share_within=within))
    apart = {"all_gather": 2, "reduce_scatter": 1}
    assert found == ({"all_gather": 1} if within else apart), "of the table; of the tokens, and of the table"


@pytest.mark.parametrize("readers", [1, 3])
def test_gradients_are_those_of_the_whole(readers: int):
    def fun(table: jax.Array, tokens: jax.Array) -> jax.Array:
        return jax.grad(lambda t: sum((i + 1) * jnp.sum(jnp.sin(t[tokens]) ** 2) for i in range(readers)))(table)

    step = ap.jit(fun, MESH, [BP, FSDP])
    np.testing.assert_allclose(step(TABLE, TOKENS), jax.jit(fun)(TABLE, TOKENS), rtol=1e-4, atol=1e-5)
    assert step.lower(TABLE, TOKENS).program.collectives()["reduce_scatter"] > 0
