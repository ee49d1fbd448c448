"""What a bound counts of products that may run inside others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.hardware.devices import device
from autopart.costmodel.simulator.program_arrays import program_arrays
from autopart.search.ilp.nesting_products import nesting_products
from experiments.ilp.small import f32
from tests.search.test_ilp_least_costs import began, shares_of_states

SMALL, LARGE = 256, 4096
X, A, B = f32(8192, SMALL), f32(SMALL, SMALL), f32(SMALL, SMALL)


def forward(x, a, b):
    return jax.nn.gelu(x @ a) @ b


def three(x, a, b):
    return jnp.tanh(jnp.tanh(x @ a) @ b) @ a


def gated(x, a, b):
    return (jax.nn.silu(x @ a) * (x @ b)) @ a


def first_layer(x, a, b):
    return jax.grad(lambda a, b: (forward(x, a, b) ** 2).mean(), (0, 1))(a, b)


PROGRAMS = {"forward": (forward, 1), "three": (three, 2), "gated": (gated, 2), "first layer": (first_layer, 1)}
"""A function, and how many products may run inside others in some state."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_products_may_run_inside_others(name):
    function, count = PROGRAMS[name]
    arrays = program_arrays(began(function, (X, A, B), "tpu_v5e").program, device("tpu_v5e"))
    assert len(nesting_products(arrays, 8, 128.0)) == count


def test_products_that_are_too_large_however_they_are_tiled_run_apart():
    arrays = program_arrays(
        began(forward, (f32(8192, LARGE), f32(LARGE, 4 * LARGE), f32(4 * LARGE, LARGE)), "tpu_v5e").program,
        device("tpu_v5e"),
    )
    assert not nesting_products(arrays, 8, 128.0)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("chip", ["tpu_v3", "tpu_v5e"])
def test_no_state_costs_less_than_is_counted(name, chip):
    start = began(PROGRAMS[name][0], (X, A, B), chip)
    assert shares_of_states(start, 24, seed=1).max() <= 1 + 1e-9
