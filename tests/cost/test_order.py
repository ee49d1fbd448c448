"""Do neighbouring matmuls change places exactly where that saves memory?

%big = dot %u, %v               1024 x 1024, read at the end
%wg = all_gather %w             1024 x 1024, gone after %small
%small = dot %y, %wg            8 x 1024
"""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import autopart as ap
from tests.cost.programs import between, f32, moves, nodes_of, plain_device, simulated

N = 1024
SQUARE = 4.0 * N * N
STORED = [ap.ManualPartition({"y": 0}, axis="x"), ap.ManualPartition({"w": 0}, axis="x")]


def device(hides_latency=False):
    return plain_device(f"orders_for_{'latency' if hides_latency else 'memory'}", hides_latency=hides_latency)


def large_first(u, v, y, w):
    big = u @ v
    small = y @ w
    return big @ v[:, 0], small


def run(function, n=N, hides_latency=False):
    args = (f32(n, n), f32(n, n), f32(8, n), f32(n, n))
    return simulated(function, *args, device=device(hides_latency), ways=2, schedule=STORED)


def test_the_matmul_whose_gathered_operand_goes_again_runs_first():
    found = run(large_first)
    big, small, *_ = nodes_of(found, "dot_general")
    (gather,) = moves(found)[:1]
    assert found.slot[gather] < found.slot[small] < found.slot[big]
    assert between(found) == SQUARE + 4 * N


def test_a_compiler_that_hides_latency_keeps_program_order_and_needs_both():
    found = run(large_first, hides_latency=True)
    big, small, *_ = nodes_of(found, "dot_general")
    assert found.slot[big] < found.slot[small]
    assert between(found) == 2 * SQUARE


@pytest.mark.parametrize("depends", [False, True])
def test_a_matmul_that_reads_the_other_stays_behind_it(depends):
    """The second one's sum is reduced into memory of its own, so that it would rather run first."""

    def function(u, v, y, w):
        big = u @ v
        return big, (big if depends else y) @ w

    summed = [ap.ManualPartition({"w": 0}, axis="x")]
    found = simulated(function, *[f32(N, N)] * 4, device=device(), ways=2, schedule=summed)
    big, total = nodes_of(found, "dot_general")
    assert (found.slot[big] < found.slot[total]) == depends


@pytest.mark.parametrize(("n", "swapped"), [(256, False), (512, False), (640, True)])
def test_less_than_a_mebibyte_is_not_worth_it(n, swapped):
    """512 x 512 of f32 are just that."""
    found = run(large_first, n)
    big, small, *_ = nodes_of(found, "dot_general")
    assert (found.slot[small] < found.slot[big]) == swapped


def test_matmuls_with_another_op_between_them_stay():
    def apart(u, v, y, w):
        big = u @ v
        middle = jnp.sort(y, axis=1)
        return big @ v[:, 0], middle @ w

    found = run(apart)
    big, small, *_ = nodes_of(found, "dot_general")
    assert found.slot[big] < found.slot[small]
