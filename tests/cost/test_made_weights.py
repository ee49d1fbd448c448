"""Weights that another product makes for each task: which kernels run as one, and how long does a step take?

Cycles by libtpu 0.0.51 of two layers that end in one feature, of which each task has its own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, launched, nodes_of, simulated

CLOCK_HZ = 1.5e9


def loss(first, second, task, x):
    x = jnp.tanh(jnp.einsum("bnk,bkl->bnl", x, jnp.einsum("bh,hkl->bkl", task, first)))
    return (jnp.einsum("bnl,bl->bn", x, jnp.einsum("bh,hl->bl", task, second)) ** 2).sum()


def run(function, tasks, rows, features):
    sizes = (32, features, features), (32, features), (tasks, 32), (tasks, rows, features)
    return simulated(function, *(f32(*size) for size in sizes), device="tpu_v5e")


@pytest.mark.parametrize(
    ("tasks", "rows", "features", "forward", "gradient"),
    [(64, 512, 128, 119153, 142057), (256, 256, 64, 122731, 133199)],
)
def test_seconds_are_near_the_compilers(tasks, rows, features, forward, gradient):
    for function, cycles in ((loss, forward), (jax.grad(loss, (0, 1)), gradient)):
        assert 0.78 < run(function, tasks, rows, features).compute_s * CLOCK_HZ / cycles < 1.25


def test_a_sum_joins_the_product_that_makes_what_it_sums_though_its_weights_are_made_later():
    found = run(loss, 256, 256, 64)
    work = found.graph.nodes["matrix_work"]
    joined = [k for k in nodes_of(found, "dot_general") if found.leader[k] != k]
    assert [(work[k] > 0, work[found.leader[k]] > 0) for k in joined] == [(False, True)]


def test_a_product_that_sums_over_one_element_runs_inside_its_reader():
    def outer(a, b):
        return jnp.tanh(jnp.einsum("bmk,bnk->bmn", a, b))

    found = simulated(outer, f32(64, 256, 1), f32(64, 128, 1), device="tpu_v5e")
    assert len(launched(found)) == 1
    assert found.graph.nodes["matrix_work"].sum() == 0
