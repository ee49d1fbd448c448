"""Are indices that loops count known to be in range, and those that are not clamped?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autopart as ap
from autopart.spmd.for_xla.intervals import Intervals

MESH = ap.Mesh({"a": 2}, device="cpu_host")
ROWS, COLUMNS = 6, 4


def stacked_and_read_back(x):
    """What differentiation makes of a scan: rows that one loop writes and another reads, last first."""
    return jax.grad(lambda x: jax.lax.scan(lambda c, row: (jnp.sin(c * row),) * 2, x[0], x)[1].sum())(x)


def by_counters_of_their_own(x):
    """Row i is written by one index, and read by others: i, 2 i from the end, and as negative indices are spelled."""

    def write(i, rows):
        return rows.at[i].set(x[i] + rows[i - ROWS])

    def read(i, carry):
        return carry[0] + rows[carry[1]] * rows[i], carry[1] - 2

    rows = jax.lax.fori_loop(0, ROWS, write, jnp.zeros_like(x))
    return jax.lax.fori_loop(0, ROWS // 2, read, (jnp.zeros(COLUMNS), ROWS - 1))[0]


def up_to(x, end):
    """Nobody knows how far this one goes."""
    return jax.lax.fori_loop(0, end, lambda i, rows: rows.at[i].set(rows[i] + 1), x)


def emitted(program, *args):
    """How many indices are clamped; the program and its parts have the same results."""
    jitted = ap.jit(program, MESH, [ap.ManualPartition({"x": 1}, axis="a")])
    for mine, plain in zip(*(jax.tree.leaves(run(*args)) for run in (jitted, jax.jit(program))), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-6)
    return str(jitted.lower(*args).exported).count("stablehlo.minimum")


def loop_of(function, *args):
    """The first loop of what jax makes of a function."""
    (main,) = jax.jit(function).lower(*args).compiler_ir("stablehlo").body.operations
    return next(op.operation for op in main.regions[0].blocks[0].operations if op.operation.name == "stablehlo.while")


X = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)


@pytest.mark.parametrize("program", [stacked_and_read_back, by_counters_of_their_own])
def test_what_a_loop_counts_is_not_clamped(program):
    assert emitted(program, X) == 0


def test_what_is_not_known_is_clamped():
    assert emitted(up_to, X, 9) > 0


numbers = st.integers(-20, 20)


@settings(max_examples=60, deadline=None)
@given(numbers, numbers, st.integers(1, 7), numbers, numbers)
def test_intervals_are_those_of_a_loop_that_is_run(first, limit, by, start, step):
    def counting(x):
        def turn(carry):
            i, j, held, x = carry
            return i + by, j + step, held, x + j

        return jax.lax.while_loop(lambda carry: carry[0] < limit, turn, (first, start, limit, x))

    arguments = loop_of(counting, 0.0).regions[1].blocks[0].arguments
    turns = range(first, max(limit, first + 1), by)
    others = [start + step * turn for turn in range(len(turns))]
    found = [Intervals(1).of(argument) for argument in arguments]
    expected = [(min(turns), max(turns)), (min(others), max(others))]
    expected += [(limit, limit)] * (len(arguments) == 4)  # jax 0.12 carries nothing that no turn changes
    assert sorted(interval for interval in found if interval) == sorted(expected)


def test_what_is_added_may_change_from_turn_to_turn():
    def doubling(x):
        return jax.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1] + c[1], c[2] + c[0], x), (0, 1, 2, x))

    found = [Intervals(1).of(a) for a in loop_of(doubling, 0.0).regions[1].blocks[0].arguments]
    assert [interval for interval in found if interval] == [(0, 8)]
