"""Which kernels run as one, with several results?

%g = dot %x %d              Adam's update of a matrix joins the matmul that makes its gradient, on TPUs:
%m' = 0.9 %m + 0.1 %g       %g is never written
%v' = 0.9 %v + 0.1 %g %g
%w' = %w - %m' / sqrt %v'
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.compiled.fusion.multi_output import JOIN_WINDOW_OPS, MAX_RESULTS
from autopart.costmodel.hardware.devices import AroundMatmul
from tests.cost.programs import between, f32, kernels, launched, moves, nodes_of, plain_device, simulated

N = 512
SQUARE = 4.0 * N * N


def run(function, inputs, joins=True, **how):
    name = plain_device(f"joins_{joins}", around_matmul=AroundMatmul(joins_results=joins))
    return simulated(function, *[f32(N, N)] * inputs, device=name, **how)


def adam(w, m, v, x, d):
    g = x @ d
    m = 0.9 * m + 0.1 * g
    v = 0.9 * v + 0.1 * (g * g)
    return w - m / (jnp.sqrt(v) + 1e-5), m, v


def test_an_update_joins_the_matmul_and_the_gradient_is_never_written():
    found = run(adam, 5, donate=(0, 1, 2))
    (matmul,) = nodes_of(found, "dot_general")
    assert launched(found) == [matmul]
    assert {int(found.leader[k]) for k in kernels(found)} == {matmul}
    assert found.hbm_bytes == (5 + 3) * SQUARE
    assert between(found) == 0


def test_without_joining_matmuls_the_update_is_a_kernel_of_its_own_that_reads_the_gradient():
    found = run(adam, 5, joins=False, donate=(0, 1, 2))
    (matmul,) = nodes_of(found, "dot_general")
    first, *others = [k for k in launched(found) if k != matmul]
    assert others == []
    assert {int(found.leader[k]) for k in kernels(found) if k != matmul} == {first}
    assert found.hbm_bytes == (2 + 1) * SQUARE + (3 + 1 + 3) * SQUARE
    assert between(found) == SQUARE


def test_kernels_that_read_the_same_array_in_step_are_one():
    found = run(lambda x: (x * 2, jnp.sum(x), x + 1), 1, joins=False)
    assert len(launched(found)) == 1
    assert found.hbm_bytes == pytest.approx(3 * SQUARE, rel=1e-5)


def test_kernels_that_read_the_same_array_at_other_places_stay_apart():
    """A transpose reads x out of step."""
    found = run(lambda x: (x * 2, jnp.sort(x), x[: N // 2] + 1), 1, joins=False)
    assert len(launched(found)) == 3


def test_an_op_does_not_join_before_all_that_it_reads_is_there():
    def function(x, y):
        first = x * 2
        late = jnp.sort(y)
        return first, x + late

    found = run(function, 2)
    first, add = nodes_of(found, "multiply")[0], nodes_of(found, "add")[0]
    assert found.leader[add] == add != first


@pytest.mark.parametrize(("updates", "kernels_wanted"), [(MAX_RESULTS, 1), (MAX_RESULTS + 4, 2)])
def test_no_more_than_so_many_kernels_join_one(updates, kernels_wanted):
    def function(x, d):
        g = x @ d
        return tuple(g * float(i + 2) for i in range(updates))

    assert len(launched(run(function, 2))) == kernels_wanted


@pytest.mark.parametrize(("ops_between", "together"), [(10, True), (JOIN_WINDOW_OPS + 10, False)])
def test_an_op_joins_a_kernel_at_most_a_window_before_it(ops_between, together):
    """The exponential takes memory and frees none, so that it does not run early."""

    def function(x, y):
        first = x * 2
        for _ in range(ops_between):
            y = jnp.sort(y)
        return first, jnp.sort(jnp.exp(x)), y

    found = run(function, 2)
    first, last = nodes_of(found, "multiply")[0], nodes_of(found, "exponential")[0]
    assert (found.leader[last] == first) == together


def test_a_loop_and_what_is_outside_it_stay_apart():
    def function(x):
        inside = jax.lax.fori_loop(0, 3, lambda i, c: jnp.sort(c) + x, x)
        return inside, jnp.sort(x * 2)

    found = run(function, 1)
    add, multiply = nodes_of(found, "add")[0], nodes_of(found, "multiply")[0]
    assert found.leader[multiply] == multiply != add


def test_in_a_loop_what_is_kept_for_later_is_written_by_the_kernel_that_makes_it():
    """As an LSTM keeps its gates for the backward pass."""

    def turn(h, x):
        a, b = jnp.tanh(h + x), jnp.exp(h * x)
        return jnp.sort(a * b), (a, b)

    def update(x, row):
        kept = jnp.tanh(row)
        return jax.lax.dynamic_update_slice(x, kept[None], (0, 0)), jnp.sort(kept)

    found = simulated(lambda h, x: jax.lax.scan(turn, h, x), f32(N), f32(8, N), device="tpu_v5e")
    apart = simulated(update, f32(8, N), f32(N), device="tpu_v5e")
    for run_, joins in ((found, True), (apart, False)):
        for update_ in nodes_of(run_, "dynamic_update_slice"):
            assert (run_.leader[update_] != update_) == joins


@pytest.mark.parametrize("corrected_by", ["a count", "its own gradient"])
def test_in_a_loop_a_correction_that_stands_behind_the_gradient_does_not_keep_its_update_apart(corrected_by):
    """As Adam's bias correction does, which is made of the count that the loop carries."""
    layers = JOIN_WINDOW_OPS

    def turn(_, carry):
        w, m, count, x, y = carry
        g = x @ w
        m = 0.9 * m + g
        for _ in range(layers):
            y = jnp.sort(y)
        scale = 1.0 - 0.9 ** (count + 1.0 if corrected_by == "a count" else jnp.sort(g[0])[:1])
        return w - m / scale, m, count + 1.0, x, y

    found = simulated(
        lambda *carry: jax.lax.fori_loop(0, 3, turn, carry),
        *(f32(N, N), f32(N, N), f32(1), f32(N, N), f32(8, 128)), device="tpu_v5e",
    )  # fmt: skip
    (matmul,), subtract = nodes_of(found, "dot_general"), nodes_of(found, "subtract")[-1]
    assert (found.leader[subtract] == matmul) == (corrected_by == "a count")


@pytest.mark.parametrize(("gathered", "together"), [("an argument", True), ("the product", False)])
def test_what_waits_for_a_gather_joins_a_product_on_which_the_gather_does_not_depend(gathered, together):
    """As a norm's scale is gathered for its gradient under FSDP, behind the product that makes this."""

    def function(x, w, scale):
        g = x @ w
        row = scale if gathered == "an argument" else jnp.max(g, axis=0)
        return jnp.sum(g * row, axis=1)

    schedule = [ap.ManualPartition({"x": 0}, axis="x"), ap.ManualPartition({"scale": 0}, axis="x")]
    found = simulated(function, f32(N, N), f32(N, N), f32(N), device="tpu_v5e", ways=2, schedule=schedule)
    (product,), reductions = nodes_of(found, "dot_general"), nodes_of(found, "reduce")
    assert len(moves(found)) == 1
    assert (found.leader[reductions[-1]] == product) == together
