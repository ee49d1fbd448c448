"""Do reductions combine where they may, and pay one latency then?

three sums over four devices, each all_reduce    6 latencies + 2 * 3/4 of its bytes over the links
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.cost.programs import LATENCY_S, LINK_BYTES_PER_S, f32, moves, plain_device, simulated

WAYS = 4
ROWS, N = 8, 256
SUM_BYTES = 4.0 * N * N
SUM_LATENCY_S = 2 * (WAYS - 1) * LATENCY_S
SUM_LINK_S = 2 * (WAYS - 1) / WAYS * SUM_BYTES / LINK_BYTES_PER_S
TILED = [ap.ManualPartition({"args": 0}, axis="x")]


def run(function, combine_bytes, inputs=4):
    name = plain_device(f"combines_{combine_bytes:.0f}", combine_bytes=combine_bytes)
    return simulated(lambda args: function(*args), [f32(ROWS, N)] * inputs, device=name, ways=WAYS, schedule=TILED)


def three_sums(x, a, b, c):
    return x.T @ a, x.T @ b, x.T @ c


def slots(found):
    return [int(found.slot[k]) for k in moves(found)]


@pytest.mark.parametrize(("combine_bytes", "batches"), [(0, 3), (2, 3), (2 * SUM_BYTES, 2), (3 * SUM_BYTES, 1)])
def test_sums_combine_up_to_the_devices_bytes_and_share_a_latency(combine_bytes, batches):
    found = run(three_sums, combine_bytes)
    assert len(moves(found)) == 3
    assert len(set(slots(found))) == batches
    assert found.collective_s == pytest.approx(3 * SUM_LINK_S + batches * SUM_LATENCY_S, abs=1e-8)


def test_a_combined_sum_runs_when_the_last_of_its_parts_is_ready():
    apart, together = run(three_sums, 0), run(three_sums, 3 * SUM_BYTES)
    assert slots(together) == [max(slots(apart))] * 3


def test_sums_and_maxima_do_not_combine():
    def sum_and_max(x, a, b):
        maxima = (jnp.max(each[:, :, None] + b[:, None, :], axis=0) for each in (x, a))
        return x.T @ a, x.T @ b, *maxima

    found = run(sum_and_max, 10 * SUM_BYTES, inputs=3)
    first, second, third, fourth = slots(found)
    assert first == second
    assert third == fourth
    assert second != third


def test_a_sum_that_is_read_soon_is_left_alone():
    def read_at_once(x, a, b, c):
        return x.T @ a, jnp.sort(x.T @ b), x.T @ c

    found = run(read_at_once, 10 * SUM_BYTES)
    first, second, third = slots(found)
    assert first == third > second
    assert found.collective_s == pytest.approx(3 * SUM_LINK_S + 2 * SUM_LATENCY_S, abs=1e-8)


def test_a_sum_that_is_read_after_a_hundred_ops_waits_for_others_until_then():
    """The third sum is ready only after the first has been read, so it is a batch of its own."""

    def read_later(x, a, b, c):
        first, second = x.T @ a, x.T @ b
        for _ in range(120):
            c = jnp.sort(c, axis=1)
        return jnp.sort(first), second, x.T @ c

    found = run(read_later, 10 * SUM_BYTES)
    first, second, third = slots(found)
    assert first == second < third


def test_sums_inside_and_outside_a_loop_do_not_combine():
    """The loop reads its sum in the same turn, and so has to do it inside."""

    def in_a_loop(x, a, b):
        return x.T @ b, jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(x.T @ (a * i)), jnp.zeros((N, N)))

    found = run(in_a_loop, 100 * SUM_BYTES, inputs=3)
    assert [int(found.graph.nodes["scope"][k]) > 0 for k in moves(found)] == [False, True]
    outside, inside = slots(found)
    assert outside < inside


@pytest.mark.parametrize(
    ("shape", "batches"),
    [
        pytest.param((64,), 1, id="made an all_reduce"),
        pytest.param((WAYS * 128,), 3, id="whole columns of tiles"),
        pytest.param((64, 8), 3, id="two dims"),
    ],
)
def test_gathers_of_one_dim_that_the_compiler_makes_all_reduces_combine_as_these(shape, batches):
    """Parameters that are whole, of which each device updates a part."""
    name = plain_device("combines_gathers", combine_bytes=SUM_BYTES, layout_tile=(8, 128))
    states = [f32(*shape)] * 3
    schedule = [ap.ManualPartition({"outputs": ap.REPLICATED}, axis="x"), ap.ManualPartition({"states": 0}, axis="x")]

    def on(device):
        return simulated(lambda states: [x * 2.0 for x in states], states, device=device, ways=WAYS, schedule=schedule)

    found, apart = on(name), on(plain_device("combines_no_gathers", layout_tile=(8, 128)))
    assert len(moves(found)) == 3
    assert len(set(slots(found))) == batches
    saved_s = (3 - batches) * SUM_LATENCY_S
    assert found.collective_s == pytest.approx(apart.collective_s - saved_s, abs=1e-8)
