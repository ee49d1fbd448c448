"""Is a table whose gradient is reduced whole reduced after everything else is updated?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.sums.last_reductions import NONE, last_reductions

MESH = ap.Mesh({"a": 4, "b": 2})
R = np.random.default_rng(0)
PARAMS = {"table": R.normal(size=(64, 8)).astype("f4"), "weight": R.normal(size=(8, 8)).astype("f4")}
TOKENS = R.integers(-2, 66, (8, 4)).astype("i4")
BP = ap.ManualPartition({"tokens": 0}, axis="a")
SHARDED = [BP, ap.ManualPartition({"params": ap.REPLICATED}, axis="a"), ap.ManualPartition({"outputs": 0}, axis="a")]
Params = dict[str, Any]


def _loss(params: Params, tokens: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(params["table"][tokens] @ params["weight"]) ** 2)


def _tied(params: Params, tokens: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(jnp.sin(params["table"][tokens] @ params["weight"]) @ params["table"].T))


def _step(
    loss: Callable[..., jax.Array], update: Callable[..., jax.Array] = lambda p, g: p - 0.1 * g / (1 + jnp.abs(g))
) -> Callable[..., Params]:
    return lambda params, tokens: jax.tree.map(update, params, jax.grad(loss)(params, tokens))


def _lowered(step: Callable[..., Any], tactics: list[ap.Tactic], tokens: np.ndarray = TOKENS) -> ap.Lowered:
    """The lowered program, which computes what jax does."""
    partitioned = ap.jit(step, MESH, tactics)
    for ours, theirs in zip(
        jax.tree.leaves(partitioned(PARAMS, tokens)), jax.tree.leaves(jax.jit(step)(PARAMS, tokens)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    return partitioned.lower(PARAMS, tokens)


def _ops(low: ap.Lowered) -> list[Any]:
    return [op.operation for op in low.exported.body.operations[0].regions[0].blocks[0].operations]


def _shape(op: Any) -> list[int]:
    return list(op.results[0].type.shape)


def _order(low: ap.Lowered) -> list[str]:
    """What the module reduces and holds back, in order: the shapes of all_reduces, "barrier" for a barrier."""
    found = []
    for op in _ops(low):
        if op.name == "stablehlo.all_reduce":
            found.append("x".join(map(str, _shape(op))))
        elif op.name == "stablehlo.optimization_barrier":
            found.append("barrier")
    return found


@pytest.mark.parametrize(("loss", "tokens"), [(_loss, TOKENS), (_tied, np.tile(TOKENS, (2, 1)))])
def test_the_table_is_reduced_behind_a_barrier_with_what_is_updated_already(
    loss: Callable[..., jax.Array], tokens: np.ndarray
):
    low = _lowered(_step(loss), [BP], tokens)
    program, last = low.program.program, last_reductions(low.program)
    assert [program.type_of(v).shape for v in last.values] == [(64, 8)]
    assert [program.type_of(v).shape for v in last.outputs] == [(8, 8)]
    assert not last.products
    assert _order(low) == ["8x8", "barrier", "64x8"]


def test_a_product_of_no_more_tokens_than_columns_is_done_last_too():
    low = _lowered(_step(_tied), [BP])
    program, last = low.program.program, last_reductions(low.program)
    assert not last.values
    assert [program.spec(op).results[0].shape for op in last.products] == [(64, 8)]
    assert _order(low) == ["8x8", "barrier", "64x8"]
    (product,) = (op for op in _ops(low) if op.name == "stablehlo.dot_general" and _shape(op) == [64, 8])
    assert "stablehlo.optimization_barrier" in [operand.owner.name for operand in product.operands]


def test_what_no_update_wrote_is_reduced_where_it_is_made():
    def step(params: Params, tokens: jax.Array) -> Params:
        return {"weight": jax.grad(_loss)(params, tokens)["weight"], "table": params["table"] * 2}

    low = _lowered(step, [BP])
    assert last_reductions(low.program) == NONE
    assert _order(low) == ["8x8"]


def test_a_table_smaller_than_another_output_is_reduced_where_it_is_made():
    wide = {"table": PARAMS["table"], "weight": R.normal(size=(8, 512)).astype("f4")}
    low = ap.jit(_step(_loss), MESH, [BP]).lower(wide, TOKENS)
    assert last_reductions(low.program) == NONE


def test_a_gradient_that_is_summed_up_for_all_updates_is_reduced_where_it_is_made():
    def clipped(params: Params, tokens: jax.Array) -> Params:
        gradients = jax.grad(_loss)(params, tokens)
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in gradients.values()))
        return jax.tree.map(lambda p, g: p - g / (1 + norm), params, gradients)

    assert last_reductions(_lowered(clipped, [BP]).program) == NONE


def test_a_gradient_of_which_tiles_are_kept_is_reduced_where_it_is_made():
    assert last_reductions(_lowered(_step(_loss), SHARDED).program) == NONE


def test_a_program_of_one_table_has_nothing_to_do_before():
    def step(params: Params, tokens: jax.Array) -> jax.Array:
        return jax.grad(_loss)(params, tokens)["table"]

    assert last_reductions(_lowered(step, [BP]).program) == NONE
