"""Is state in a mutable reference of jax an error that says what is legal, and legal where jax writes it out?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 8})
BP = ap.ManualPartition({"x": 0}, axis="batch")
X = np.ones((16, 8), "f4")


def writes(total):
    def step(x):
        total[...] += x.sum(0)
        return x * 2

    return step


def reads(total):
    def step(x):
        return x + total[...]

    return step


def writes_in_a_loop(total):
    def step(x):
        def add(carry, row):
            total[...] += row
            return carry, None

        return x + jax.lax.scan(add, 0, x)[0]

    return step


def writes_in_a_function(total):
    @jax.jit
    def step(x):
        total[...] += x.sum(0)
        return x

    return step


@pytest.mark.parametrize("fun", [writes, reads, writes_in_a_loop, writes_in_a_function])
@pytest.mark.parametrize("device", [None, "tpu_v3"])
def test_a_reference_that_a_function_closes_over_is_refused_with_its_line(fun, device):
    step = ap.jit(fun(jax.new_ref(jnp.zeros(8))), ap.Mesh({"batch": 8}, device=device), [BP])
    refused = r"step closes over a mutable reference: float32\[8\][\s\S]*references.py:\d+[\s\S]*an array in its place"
    with pytest.raises(ap.ProgramError, match=refused):
        step(X)


def test_a_reference_that_is_an_argument_is_refused():
    step = ap.jit(lambda x, state: x + state["total"][...], MESH, [BP])
    with pytest.raises(ap.CallError, match=r"called with state/total, a mutable reference[\s\S]*an array in its"):
        step(X, {"total": jax.new_ref(jnp.zeros(8))})


def test_a_reference_inside_the_function_is_written_out():
    def step(x):
        total = jax.new_ref(jnp.zeros(8))
        total[...] += x.sum(0)
        return x * total[...]

    np.testing.assert_array_equal(ap.jit(step, MESH, [BP])(X), X * 16)


def test_its_value_can_go_in_and_come_out():
    total = jax.new_ref(jnp.zeros(8))[...]
    step = ap.jit(lambda x, total: (x * 2, total + x.sum(0)), MESH, [BP])
    for _ in range(2):
        _, total = step(X, total)
    np.testing.assert_array_equal(total, 32)
