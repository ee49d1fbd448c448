"""Is what was left replicated said, with the reason; is a chosen dim the right one; can baselines be compared?"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.explained.programs import BP, MESH, array, lowered, stacked_step


def stacked(decision) -> ap.Lowered:
    tactic = ap.ManualPartition({"params": decision}, axis="batch", name="Z3")
    params = {"layers": array(8, 1024, 1024)}
    return ap.jit(stacked_step, MESH, [BP, tactic], donate_argnums=0).lower(params, array(4096, 1024))


@pytest.mark.parametrize("decision", [ap.FIRST_DIVISIBLE_DIM, ap.LARGEST_DIVISIBLE_DIM])
def test_a_chosen_dim_is_never_that_of_stacked_layers(decision):
    assert stacked(decision).metadata.in_specs["params/layers"][0] == ()
    assert stacked(decision).metadata.in_specs["params/layers"] != ()


def test_a_dim_given_as_a_number_may_be_that_of_stacked_layers_and_is_slower():
    by_layer, chosen = stacked(0), stacked(ap.FIRST_DIVISIBLE_DIM)
    assert by_layer.metadata.in_specs["params/layers"] == (("batch",),)
    assert chosen.estimate.step_s < 0.95 * by_layer.estimate.step_s


def test_the_largest_dim_is_the_largest_on_a_device_and_the_first_of_equal_ones():
    def spec(shape, schedule):
        low = ap.jit(lambda x: x * 2, MESH, schedule).lower(array(*shape))
        return low.metadata.in_specs["x"]

    largest = ap.ManualPartition({"x": ap.LARGEST_DIVISIBLE_DIM}, axis="batch")
    split = ap.ManualPartition({"x": 1}, axis="model")
    assert spec((8, 64, 16), [largest]) == ((), ("batch",))
    assert spec((16, 16), [largest]) == (("batch",),)
    assert spec((16, 24), [split, largest]) == (("batch",), ("model",))
    assert spec((16, 63), [largest]) == (("batch",),)


def test_what_has_no_divisible_dim_is_noted():
    report = lowered("BP+MP+Z3").metadata.tactics[-1]
    assert report.report["left_whole"] == [{"name": "params/odd", "axis": "batch", "why": "3 is not a multiple of 4"}]
    assert 'left whole on "batch": params/odd: 3 is not a multiple of 4' in report.notes


def test_what_only_a_loop_walks_along_is_noted():
    tactic = ap.ManualPartition({"layers": ap.FIRST_DIVISIBLE_DIM}, axis="batch")
    low = ap.jit(walk, MESH, [tactic]).lower(array(8, 3), array(3))
    [left] = low.metadata.tactics[0].report["left_whole"]
    assert left["why"] == "a loop takes slices along dim 0, and no other dim is divisible by batch"


def walk(layers, x):
    return jax.lax.scan(lambda x, b: (x + b, None), x, layers)[0]


def test_replicated_arguments_are_listed_with_the_reason():
    rows = lowered("BP").metadata.replicated
    reasons = {(row.axis, row.kind): row for row in rows}
    assert reasons["model", "nobody asked"].names == ("params/down", "params/up", "params/odd")[:2]
    assert reasons["batch", "indivisible"].names == ("params/odd",)
    assert "left replicated:" in str(lowered("BP").metadata)
    assert sum(row.bytes for row in rows if row.axis == "model") == 2 * 256 * 512 * 4 + 12


def test_nothing_replicated_says_nothing():
    tactic = ap.ManualPartition({"x": 0}, axis="batch")
    metadata = ap.jit(lambda x: x * 2, MESH, [tactic]).lower(array(8, 8)).metadata
    assert metadata.replicated == ()
    assert "replicated" not in str(metadata)


def searched(rows: int, **fields) -> ap.Lowered:
    auto = ap.AutomaticPartition(["data"], optimizer="greedy", budget=ap.Budget(20), cache=False, name="Auto", **fields)
    mesh = ap.Mesh({"data": 4}, device="tpu_v3")
    params = {"up": array(32, 64), "down": array(64, 32)}

    def step(params, x):
        return jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"]) ** 2)

    return ap.jit(step, mesh, [auto]).lower(params, array(rows, 32))


@functools.cache
def small() -> ap.Metadata:
    return searched(64).metadata


def test_an_axis_that_costs_more_than_it_gives_is_said_with_what_it_costs():
    report = small().tactics[0].report
    assert report["unused_axes"] == ["data"]
    [remark] = [r for r in report["remarks"] if r.startswith('axis "data" is not used: ')]
    assert "all_reduce" in remark
    assert ", against " in remark
    assert small().replicated[0].kind == "search"
    assert small().replicated[0].why == remark


def test_a_batch_that_the_axis_does_not_divide_is_said_not_to_be_offered():
    report = searched(66).metadata.tactics[0].report
    assert (
        '66 is not divisible by data=4, so it was not offered: dim 0 of x; uneven="pad" makes it longer'
        in report["remarks"]
    )
    assert not any("not offered" in remark for remark in small().tactics[0].report["remarks"])


def test_the_result_stands_first_among_the_baselines_and_is_no_worse():
    lines = str(small()).splitlines()
    at = lines.index("Auto, beside named schedules:")
    assert lines[at + 1].split()[:2] == ["Auto", "found"]
    best = small().tactics[0].report["best"]["step_s"]
    assert all(best <= row["step_s"] for row in small().tactics[0].report["baselines"])
