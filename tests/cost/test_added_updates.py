"""Is an update of zeros that is added to an array one of the array?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.hardware.devices import XLA_TPU
from tests.cost.programs import f32, nodes_of, plain_device, simulated
from tests.cost.test_fusion import roots

N, ROWS = 256, 16
ROW_BYTES = 4.0 * ROWS * N


def found(function, merged=True):
    name = plain_device(f"added_updates_{merged}", around_matmul=XLA_TPU, compiler="xla_tpu" if merged else "plain")
    return simulated(function, f32(N, N), f32(ROWS, N), jax.ShapeDtypeStruct((ROWS,), "i4"), device=name)


def scattered(rows, places, start=0.0):
    return jnp.full((N, N), start, jnp.float32).at[places].add(rows)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_added_to_a_product_is_written_over_it_whichever_comes_first(turned):
    def function(x, rows, places):
        both = [x @ x, scattered(rows, places)]
        return both[turned] + both[not turned]

    merged, apart = found(function), found(function, merged=False)
    assert roots(merged) == ["dot_general", "add"]
    assert roots(apart) == ["dot_general", "scatter", "add"]
    square = 4.0 * N * N
    assert merged.hbm_bytes == pytest.approx(2 * square + 2 * ROW_BYTES, rel=0.01)
    assert apart.hbm_bytes == pytest.approx(6 * square + ROW_BYTES, rel=0.05), "x, %g twice, %s twice, %t"


def test_what_is_scattered_into_other_numbers_or_read_again_is_an_array():
    def into_ones(x, rows, places):
        return x @ x + scattered(rows, places, start=1.0)

    def read_again(x, rows, places):
        update = scattered(rows, places)
        return x @ x + update, update

    for function in (into_ones, read_again):
        assert "scatter" in roots(found(function))


@pytest.mark.parametrize(
    "logits",
    [
        lambda hidden, table: hidden @ table.T,
        lambda hidden, table: jnp.einsum("rhd,vhd->rv", hidden.reshape(ROWS, 4, -1), table.reshape(8 * N, 4, -1)),
    ],
    ids=["turned", "seen as heads"],
)
def test_a_tied_embedding_is_scattered_into_the_gradient_that_its_logits_left(logits):
    """As autodiff writes it: the product's result is transposed twice before the sum, or seen in another shape."""

    def gradient(table, hidden, places):
        def loss(table):
            return jnp.sum(logits(hidden + table[places], table))

        return jax.grad(loss)(table)

    args = (f32(8 * N, N), f32(ROWS, N), jax.ShapeDtypeStruct((ROWS,), "i4"))
    name = plain_device("added_updates_True", around_matmul=XLA_TPU, compiler="xla_tpu")
    tied = simulated(gradient, *args, device=name)
    assert roots(tied).count("scatter") == 0
    (added,) = [k for k in nodes_of(tied, "add") if tied.graph.nodes["written"][k] == 4.0 * 8 * N * N]
    assert tied.node_hbm_bytes[added] <= 4 * ROW_BYTES, "the rows that are added, not the table"
