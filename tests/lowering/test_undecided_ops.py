"""Does an op in conflict compute the tile that is read of it, and only where nothing more is read?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})
R = np.random.default_rng(0)
X, Y, Z = (R.normal(size=(16, 8)).astype("f4") for _ in range(3))


def _lowered(fun: Callable[..., Any], tiles: dict[str, int], *args: Any) -> ap.Lowered:
    step = ap.jit(fun, MESH, [ap.ManualPartition(tiles, axis="a")])
    for got, want in zip(jax.tree.leaves(step(*args)), jax.tree.leaves(jax.jit(fun)(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return step.lower(*args)


def _loops(low: ap.Lowered, kind: str) -> list[int]:
    """How many loops each op of a kind has."""
    local = low.program
    return [len(local.nests[op]) for op in range(local.program.op_count) if local.program.spec(op).kind == kind]


def test_product_of_which_a_tile_is_read_makes_that_tile():
    low = _lowered(lambda x, y, m: m + x.T @ y, {"x": 1, "y": 1, "m": 1}, X, Y, Y[:8])
    assert low.metadata.tactics[0].conflicts, "both operands tile the product"
    assert _loops(low, "dot_general") == [1]
    assert low.program.collectives() == {"all_gather": 1}, "the operand that the product takes whole"


def test_chain_of_such_ops_follows():
    low = _lowered(lambda x, y, m: m + jnp.tanh(x.T @ y), {"x": 1, "y": 1, "m": 1}, X, Y, Y[:8])
    assert _loops(low, "dot_general") == _loops(low, "tanh") == [1]


def test_elementwise_op_exchanges_the_operand_that_is_tiled_otherwise():
    low = _lowered(lambda x, y, m: m * (x + y), {"x": 0, "y": 1, "m": 1}, X, Y, Z)
    assert low.program.collectives() == {"all_to_all": 1}


def test_product_that_is_read_whole_too_stays_whole():
    def fun(x: jax.Array, y: jax.Array, m: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = x.T @ y
        return m + product, jnp.sort(product, axis=1)[::-1, ::-1] @ jnp.ones((8, 3), "f4")

    low = _lowered(fun, {"x": 1, "y": 1}, X, Y, Y[:8])
    assert 0 in _loops(low, "dot_general")


def test_product_that_is_returned_stays_whole():
    low = _lowered(lambda x, y, m: (x.T @ y, m + 1), {"x": 1, "y": 1, "m": 1}, X, Y, Y[:8])
    assert _loops(low, "dot_general") == [0]


def test_product_that_is_returned_in_tiles_makes_its_tile():
    def fun(x: jax.Array, y: jax.Array) -> jax.Array:
        return ap.tag("product", x.T @ y)

    low = _lowered(fun, {"x": 1, "y": 1, "product": 1}, X, Y)
    assert _loops(low, "dot_general") == [1]


def test_table_stays_undecided():
    low = _lowered(lambda x, y, m: m + x.T @ y, {"x": 1, "y": 1, "m": 1}, X, Y, Y[:8])
    assert low.conflicts, "a later tactic may settle it"
