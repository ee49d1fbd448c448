"""States that people do not write and search came to: are they lowered as they should be?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import lower
from autopart.spmd.verify_local import verify
from tests.search.steps import MESH

SQUARE = np.ones((16, 16), np.float32)


def test_a_sum_of_sums_that_is_tiled_is_reduced_once():
    def f(left, right, scale):
        return (left[0] @ right[0] + left[1] @ right[1] + left[2] @ right[2]) * scale

    schedule = [
        ap.ManualPartition({"left": 1}, axis="model"),
        ap.ManualPartition({"scale": 1}, axis="model"),
    ]
    args = ([SQUARE, 2 * SQUARE, 3 * SQUARE], [SQUARE] * 3, SQUARE)
    step = ap.jit(f, MESH, schedule)
    counts = step.lower(*args).metadata.tactics[-1].collectives
    assert counts["reduce_scatter"] == 1
    assert counts["all_reduce"] == 0
    np.testing.assert_allclose(step(*args), jax.jit(f)(*args))


def test_a_sum_that_is_also_an_output_is_not_left_pending():
    def f(a, b, c, d):
        first = a @ b
        return first, first + c @ d

    schedule = [ap.ManualPartition({"a": 1, "c": 1}, axis="model")]
    args = (SQUARE, SQUARE, 2 * SQUARE, SQUARE)
    found, expected = ap.jit(f, MESH, schedule)(*args), jax.jit(f)(*args)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_two_axes_reach_one_dim_only_where_they_divide_it_together():
    """12 is a multiple of 4 and of 2, not of 8."""

    def f(bias, x):
        return jnp.tanh(x + bias)

    program = ap.jit(f, MESH).lower(np.ones(12, np.float32), np.ones((16, 12), np.float32)).traced.program
    bias, x = program.arguments
    partitioning = Partitioning(program, MESH)
    partitioning.tile(bias, 0, "batch")
    partitioning.tile(x, 1, "model")
    partitioning.propagate(["model"])
    assert partitioning.tiled_dim(bias, "batch") == 0
    assert partitioning.tiled_dim(bias, "model") == -1
    verify(lower(partitioning))
