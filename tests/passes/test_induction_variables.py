"""Is what a loop counts beside its turns computed from these, and is the number the same?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.importer import read_module
from autopart.core.passes import IMPORT_PASSES, run_passes

ROWS = np.arange(60, dtype="f4").reshape(20, 3)


def counted(first, step):
    """Sums of rows first, first + step, ..., with a number of its own."""

    def function(rows):
        def turn(carry, _):
            number, total = carry
            row = lax.dynamic_index_in_dim(rows, number, keepdims=False)
            return (number + step, total + row * (number + 1).astype("f4")), None

        return lax.scan(turn, (jnp.int32(first), jnp.zeros(3)), None, length=5)[0][1]

    return function


def carries(function, *args):
    program = run_passes(read_module(jax.jit(function).lower(*args).compiler_ir("stablehlo")), IMPORT_PASSES)[0]
    return sum(program.spec(op).kind == "carry" for op in range(program.op_count))


@pytest.mark.parametrize(("first", "step"), [(0, 1), (3, 1), (0, 2), (7, -1), (2, 3)])
def test_a_number_that_grows_by_as_much_in_each_turn_is_no_carry(first, step):
    function = counted(first, step)
    assert carries(function, ROWS) == 2
    low = ap.jit(function, ap.Mesh({"a": 1}), []).lower(ROWS)
    np.testing.assert_allclose(low.compile()(ROWS), function(ROWS))


def test_a_number_that_is_squared_stays():
    def function(rows):
        return lax.scan(lambda c, _: ((c[0] * c[0] + 1, c[1] + rows[c[0] % 20]), None), (0, rows[0]), None, length=4)[0]

    assert carries(function, ROWS) == 3


def test_the_number_of_a_fori_loop_finds_rows():
    """Rows that are read and written in place are one stack."""

    def function(stack):
        return lax.fori_loop(0, 20, lambda n, s: s.at[n].set(jnp.sin(s[n])), stack)

    assert carries(function, ROWS) == 2
