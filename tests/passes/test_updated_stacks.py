"""Is a stack that a scan reads and writes row by row one array, with the same numbers?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 2, "b": 4})
TILED = [ap.ManualPartition({"stack": 1, "x": 0}, axis="a"), ap.ManualPartition({"stack": 2}, axis="b")]
R = np.random.default_rng(0)
STACK, X = R.normal(size=(3, 4, 8, 6)).astype("f4"), R.normal(size=(4, 6)).astype("f4")


def scanned(x, stack, **how):
    def layer(x, row):
        row = lax.dynamic_update_slice(row, x[:, None], (0, 2, 0))
        return jnp.tanh(x + row.sum(1)), row

    return lax.scan(layer, x, stack, **how)


def in_a_loop(x, stack):
    return lax.fori_loop(0, 2, lambda _, both: scanned(*both), (x, stack))


def in_a_scan(x, stack):
    return lax.scan(lambda both, _: (scanned(*both), both[0]), (x, stack), None, length=2)[0]


def reads_another_row(x, stack):
    def turn(_, both):
        left, rows = scanned(*both)
        return left + both[1][-1, :, 0], rows

    return lax.fori_loop(0, 2, turn, (x, stack))


def of_two_stacks_the_other(x, stack):
    def turn(_, three):
        x, one, two = three
        x, rows = scanned(x, one)
        return x, two, rows

    return lax.fori_loop(0, 3, turn, (x, stack, 2 * stack))[:2]


ONE_ARRAY = {"donated": scanned, "in a loop": in_a_loop, "in a scan": in_a_scan}
TWO = {
    "from the last on": lambda x, stack: scanned(x, stack, reverse=True),
    "another row is read": reads_another_row,
    "of two stacks the other": of_two_stacks_the_other,
}


@pytest.mark.parametrize("name", [*ONE_ARRAY, *TWO])
def test_a_stack_is_read_and_written_as_one_array_where_rows_are_their_turns_own(name):
    step = (ONE_ARRAY | TWO)[name]
    run = ap.jit(step, MESH, TILED, donate_argnames="stack")
    program = run.lower(X, STACK).program.program
    zeros = [op for op in range(program.op_count) if "broadcast" in program.spec(op).kind]
    begun = [op for op in zeros if program.type_of(program.results_of(op)[0]).shape == STACK.shape]
    assert bool(begun) == (name in TWO), "zeros begin a stack of its own"
    for got, wanted in zip(jax.tree.leaves(run(X, jnp.array(STACK))), jax.tree.leaves(step(X, STACK)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
