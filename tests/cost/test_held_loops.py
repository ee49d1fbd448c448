"""What does a turn of a loop find on the chip? Weights that it reads whole, where a turn fits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.hardware.devices import XLA_TPU
from autopart.costmodel.simulator.held_loops import CARRIED_SHARE
from tests.cost.programs import f32, plain_device, simulated

TURNS, ROWS, N = 32, 8, 1024
WEIGHT_BYTES = 4.0 * N * N


def recurrent(w, x):
    return jax.lax.scan(lambda h, row: (jnp.tanh(h @ w + row), None), jnp.zeros((ROWS, N)), x)[0]


def hbm_bytes(function, *arrays, on_chip_bytes):
    name = plain_device(f"held_loops_{on_chip_bytes}", around_matmul=XLA_TPU, on_chip_bytes=on_chip_bytes)
    return simulated(function, *arrays, device=name).hbm_bytes


@pytest.mark.parametrize(("room", "times"), [(2.0, 1), (1.2, TURNS)])
def test_weights_that_a_turn_reads_pass_memory_once_where_a_turn_fits_on_the_chip(room, times):
    assert (room * CARRIED_SHARE > 1) == (times == 1)
    found = hbm_bytes(recurrent, f32(N, N), f32(TURNS, ROWS, N), on_chip_bytes=room * WEIGHT_BYTES)
    assert found == pytest.approx(times * WEIGHT_BYTES, rel=0.4)


def test_parts_of_stacked_weights_pass_memory_in_each_turn():
    def stacked(w, x):
        return jax.lax.scan(lambda h, each: (jnp.tanh(h @ each), None), x, w)[0]

    found = hbm_bytes(stacked, f32(TURNS, N, N), f32(ROWS, N), on_chip_bytes=4 * WEIGHT_BYTES)
    assert found == pytest.approx(TURNS * WEIGHT_BYTES, rel=0.1)


def test_what_a_turn_adds_to_what_is_carried_is_written_in_each_turn():
    def added_up(x):
        return jax.lax.scan(lambda total, row: (total + jnp.tanh(row), None), jnp.zeros((N, N)), x)[0]

    found = hbm_bytes(added_up, f32(TURNS, N, N), on_chip_bytes=0.5 * WEIGHT_BYTES)
    assert found == pytest.approx(3 * TURNS * WEIGHT_BYTES, rel=0.1), "a row and the sum are read, the sum is written"
