"""Ops whose slices need more than local shapes, in programs over eight devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 4, "b": 2})


def by(axis: str, **dims: int) -> ap.ManualPartition:
    return ap.ManualPartition(dims, axis=axis)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def collectives(function, schedule, *operands) -> dict[str, int]:
    """Runs `function` partitioned and whole, requires equal numbers, and returns the collectives that occur.

    Numbers may be apart by what sums in another order leave: a share of the array's largest.
    """
    partitioned = ap.jit(function, MESH, schedule)
    for found, expected in zip(
        jax.tree.leaves(partitioned(*operands)), jax.tree.leaves(jax.jit(function)(*operands)), strict=True
    ):
        largest = np.abs(np.asarray(expected, np.float64)).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-5, atol=2e-5 * largest)
    counts = partitioned.lower(*operands).metadata.tactics[-1].collectives
    return {kind: count for kind, count in counts.items() if count}


def test_a_remat_barrier_lets_each_of_its_operands_keep_its_tiling():
    block = jax.checkpoint(lambda w, x: jnp.tanh(x @ w) @ w.T)

    def gradient(w, x):
        return jax.grad(lambda w: (block(w, block(w, x)) ** 2).sum())(w)

    found = collectives(gradient, [by("a", x=0)], array(6, 8), array(8, 6))
    assert set(found) == {"all_reduce"}


def test_a_table_sharded_by_rows_is_looked_up_with_one_all_reduce_of_the_rows():
    rows = np.array([[1, 15, 2, 0], [7, 8, 3, 9]])
    found = collectives(lambda table, i: table[i], [by("a", table=0), by("b", i=0)], array(16, 4), rows)
    assert found == {"all_reduce": 1}


def test_a_cache_sharded_over_two_axes_is_updated_across_slices_without_communication():
    def write(cache, update, at):
        return lax.dynamic_update_slice(cache, update, (0, at, 0))

    operands = (array(2, 16, 4), array(2, 5, 4), jnp.int32(6))
    assert collectives(write, [by("a", cache=1), by("b", cache=1)], *operands) == {}


def test_a_segment_sum_over_sharded_edges_is_one_all_reduce():
    edges = np.array([0, 1, 1, 5, 3, 2, 2, 9])
    found = collectives(lambda x, s: jax.ops.segment_sum(x, s, 6), [by("a", x=0)], array(8, 4), edges)
    assert found == {"all_reduce": 1}


def test_a_custom_call_brings_the_function_that_it_refers_to():
    assert collectives(lambda x: lax.approx_max_k(x, 2), [by("a", x=0)], array(8, 16)) == {}


def test_a_batch_of_factorisations_stays_where_it_is():
    x = array(8, 3, 3) + 4 * np.eye(3, dtype=np.float32)
    assert collectives(lambda x: jnp.linalg.solve(x, jnp.ones((8, 3, 2))), [by("a", x=0)], x) == {}
