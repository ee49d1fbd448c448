"""What runs before its turn, because it frees at least the memory it takes?

%g1 = dot ...       %w1' = %w1 - %g1 runs here,      not after %g3
%g2 = dot ...       %w2' = %w2 - %g2 here
%g3 = dot ...
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.compiled.buffer_assignment.liveness import SMALL_BYTES
from autopart.costmodel.compiled.slots import early
from tests.cost.programs import between, f32, moves, nodes_of, plain_device, simulated

N = 512
SQUARE = 4.0 * N * N


def run(function, inputs, shape=(N, N), **how):
    return simulated(function, *[f32(*shape)] * inputs, device=plain_device("runs_early"), **how)


def sgd(w1, w2, w3, x, y):
    gradients = [x @ x, x @ y, y @ x]
    return [w - g for w, g in zip((w1, w2, w3), gradients, strict=True)]


def test_an_update_runs_as_soon_as_its_gradient_is_there():
    found = run(sgd, 5, donate=(0, 1, 2))
    gradients, updates = nodes_of(found, "dot_general"), nodes_of(found, "subtract")
    assert [found.slot[k] for k in updates] == [early(int(found.slot[k])) for k in gradients]


def test_so_only_one_gradient_lives_at_a_time():
    assert between(run(sgd, 5, donate=(0, 1, 2))) == SQUARE


def test_what_frees_nothing_waits_for_its_turn():
    def function(x, y):
        e = jnp.exp(x)
        y = jnp.sort(jnp.sort(y))
        return jnp.sort(e), y

    found = run(function, 2)
    (exponential,), sorts = nodes_of(found, "exponential"), nodes_of(found, "sort")
    assert found.slot[exponential] == found.graph.nodes["slot"][exponential]
    assert found.slot[exponential] < found.slot[sorts[0]]


@pytest.mark.parametrize(("bytes_taken", "runs_early"), [(SMALL_BYTES - 4096, True), (SMALL_BYTES + 4096, False)])
def test_a_small_result_runs_early_whatever_it_frees(bytes_taken, runs_early):
    def function(x, y):
        y = jnp.sort(y)
        return jnp.sort(jnp.exp(x)), y

    found = run(function, 2, shape=(int(bytes_taken) // 4096, 1024))
    (exponential,) = nodes_of(found, "exponential")
    assert (found.slot[exponential] == early(0)) == runs_early


def test_a_result_larger_than_what_it_frees_waits():
    """A row that is spread over a matrix frees the row and takes the matrix."""

    def function(x, y):
        row = jnp.sort(x.sum(0))
        y = jnp.sort(y)
        return jnp.sort(row[None] + x), y

    found = run(function, 2)
    (add,) = nodes_of(found, "add")
    assert found.slot[add] == found.graph.nodes["slot"][add]


def test_what_is_redistributed_after_its_op_waits():
    """Its reduction would wait for its turn anyway, so that both arrays would live until then."""

    def function(x, y):
        total = jnp.sum(jnp.sort(x, axis=1), axis=0)
        y = jnp.sort(y, axis=1)
        return total, y

    tiled = [ap.ManualPartition({"x": 0}, axis="x")]
    whole, sharded = run(function, 2), run(function, 2, ways=2, schedule=tiled)
    (at_once,), (reduce,) = nodes_of(whole, "reduce"), nodes_of(sharded, "reduce")
    assert len(moves(sharded)) == 1
    assert whole.slot[at_once] < whole.graph.nodes["slot"][at_once]
    assert sharded.slot[reduce] == sharded.graph.nodes["slot"][reduce]


def test_what_a_loop_makes_of_a_value_from_outside_stays_inside():
    def function(x, y):
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.sort(c * jnp.sum(x)), y)

    found = run(function, 2)
    inside = nodes_of(found, "reduce")
    scope = found.arrays.home[found.graph.write_buffer[found.graph.write_ptr[inside[0]]]]
    assert scope != 0
    assert found.slot[inside[0]] >= 4 * int(found.local.program.scopes[scope].start)
