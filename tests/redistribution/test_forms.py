"""Are all forms of a step the same redistribution, and is the form that is chosen the cheapest?"""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autopart.core.mesh import Mesh
from autopart.costmodel import RedistributionSeconds
from autopart.spmd.redistribution import Plan, plan, verify
from autopart.spmd.redistribution.emission import emission
from autopart.spmd.redistribution.forms import cheapest_form, forms, other_ways
from autopart.spmd.redistribution.local_copies import MOVING, local_copies
from tests.prompt import slow
from tests.redistribution.cases import lines, planned
from tests.redistribution.on_devices import redistributed
from tests.redistribution.simulated_devices import COMBINE, run, tiles_of
from tests.redistribution.test_property import problems

CUBE = {"x": 2, "y": 2, "z": 2}
PAIR = {"x": 4, "y": 2}
V5E = RedistributionSeconds(Mesh(PAIR, device="tpu_v5e"))
WIDE = "[3{x}12, 1024, 2048{y}4096]"
WHOLE = "[12, 1024, 4096]"


def all_forms(step):
    """Every form, as it is, with what may be stacked stacked, and with what may be gathered gathered."""
    for form in forms(step):
        yield form
        yield tuple(replace(s, stacked=True) if s.kind in MOVING else s for s in form)
        yield tuple(next((way for way in other_ways(s) if way.gathers), s) for s in form)


def in_form(step, form):
    return Plan(step.source, step.target, form, 0.0, 1.0)


def test_a_gather_of_two_dims_is_one_gather_or_two_in_either_order():
    (step,) = planned(WIDE, WHOLE, PAIR).steps
    assert [[s.text() for s in form] for form in forms(step)] == [
        ['all_gather [{"x"}, {}, {"y"}]'],
        ['all_gather [{}, {}, {"y"}]', 'all_gather [{"x"}, {}, {}]'],
        ['all_gather [{"x"}, {}, {}]', 'all_gather [{}, {}, {"y"}]'],
    ]


@pytest.mark.parametrize(("dims", "count"), [(1, 1), (2, 3), (3, 13)])
def test_the_forms_over_few_dims_are_all_orders_of_all_groups(dims, count):
    source = "[" + ", ".join(["4{x}8", "4{y}8", "4{z}8"][:dims]) + "]"
    (step,) = planned(source, "[" + ", ".join(["8"] * dims) + "]", CUBE).steps
    found = list(forms(step))
    assert len(found) == len(set(found)) == count


def test_over_many_dims_only_single_dims_minor_first_are_tried():
    mesh = {a: 2 for a in "abcde"}
    (step,) = planned("[1{a}2, 1{b}2, 1{c}2, 1{d}2, 1{e}2]", "[2, 2, 2, 2, 2]", mesh).steps
    one, apart = forms(step)
    assert one == (step,)
    assert [s.gathered[0][0] for s in apart] == [4, 3, 2, 1, 0]


EACH = {
    "gather of one dim": ("[4{y}8, 8]", "[8, 8]"),
    "gather of two dims": ("[4{y}8, 2{z,x}8]", "[8, 8]"),
    "gather of three dims": ("[4{y}8, 4{x}8, 4{z}8]", "[8, 8, 8]"),
    "exchange of one pair": ("[8, 2{y,x}8]", "[2{y,x}8, 8]"),
    "exchange that turns axes around": ("[2{y,x}8, 8]", "[8, 2{x,y}8]"),
    "exchange of one dim with two": ("[2{y,x}8, 8, 8]", "[8, 4{x}8, 4{y}8]"),
    "exchange of two dims with two": ("[4{y}8, 8, 8, 2{x,z}8]", "[8, 2{x,y}8, 4{z}8, 8]"),
    "reduce_scatter of one dim": ("[8, 8] sum{x}", "[8, 4{x}8]"),
    "reduce_scatter of two dims": ("[8, 8] sum{x} sum{y}", "[4{y}8, 4{x}8]"),
    "reduce_scatter of three dims": ("[8, 8, 8] max{z} max{y} max{x}", "[4{y}8, 4{x}8, 4{z}8]"),
    "reduce_scatter under a tile": ("[4{z}8, 8] sum{x} sum{y}", "[2{y,z}8, 4{x}8]"),
    "all_reduce of maxima": ("[4{z}8, 8] max{x} max{y}", "[4{z}8, 8]"),
    "all_reduce of minima of one dim": ("[8] min{y}", "[8]"),
}


@pytest.mark.parametrize("case", [slow(case) if "three dims" in case else case for case in EACH])
def test_every_form_leaves_the_same_array_on_eight_devices(case):
    steps = planned(*EACH[case], CUBE)
    step = steps.steps[-1]
    assert len(steps.steps) == 1
    pending = [code for _, code in step.source.pending]
    parts = np.random.default_rng(0).integers(-9, 9, (*[2] * len(pending), *step.source.shape)).astype(np.int32)
    whole = parts
    for code in reversed(pending):
        whole = COMBINE[code].reduce(whole, axis=whole.ndim - len(step.source.shape) - 1)
    for form in all_forms(step):
        verify(in_form(step, form))
        assert np.array_equal(redistributed(in_form(step, form), parts), whole), [s.text() for s in form]


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from([2, 4]))
def test_the_plan_in_its_cheapest_forms_is_the_same_redistribution(problem, element_bytes):
    source, target = problem
    price = RedistributionSeconds(Mesh(dict(source.mesh), device="tpu_v5e", links={a: "dcn" for a, _ in source.mesh}))
    array = np.arange(np.prod(source.shape)).reshape(source.shape)
    for steps in (
        plan(source, target, element_bytes=element_bytes, forms=price),
        plan(source, target, element_bytes=element_bytes, cost=price),
    ):
        verify(steps)
        assert steps.height <= 1
        assert all(map(np.array_equal, run(steps, array), tiles_of(array, steps.target))), steps


@settings(max_examples=60, deadline=None)
@given(problems(pending=True))
def test_no_form_costs_less_than_the_one_that_is_chosen(problem):
    source, target = problem
    price = RedistributionSeconds(Mesh(dict(source.mesh), device="tpu_v5e", links={a: "dcn" for a, _ in source.mesh}))
    for step in plan(source, target).steps:
        cost, chosen = cheapest_form(step, 4, price)
        verify(in_form(step, chosen))
        assert cost == pytest.approx(sum(price.emitted_cost(s, 4) for s in chosen))
        others = [form for form in all_forms(step) if step.kind == "all_to_all" or form in list(forms(step))]
        assert all(cost <= sum(price.emitted_cost(s, 4) for s in form) * 1.000001 for form in others)


def test_a_gather_whose_minor_dim_is_joined_is_taken_apart_minor_dim_first():
    assert lines(planned(WIDE, WHOLE, PAIR, forms=V5E)) == [
        'all_gather [{}, {}, {"y"}]  [3{x}12, 1024, 4096]',
        'all_gather [{"x"}, {}, {}]  [12, 1024, 4096]',
    ]


def test_an_exchange_into_the_major_dim_is_stacked_and_copies_once():
    (there,) = planned("[8{x}32, 1024, 4096]", "[32, 256{x}1024, 4096]", PAIR).steps
    chosen = cheapest_form(there, 4, V5E)[1][0]
    assert chosen.stacked
    assert [len(part) for part in local_copies(there, strided=True, tiled=True)] == [1, 1]
    assert [len(part) for part in local_copies(chosen, strided=True, tiled=True)] == [1, 0]


@pytest.mark.parametrize(
    ("source", "target", "gathers"),
    [
        ("[96] max{x}", "[96]", True),
        ("[96] min{x} min{y}", "[96]", True),
        ("[96] sum{x}", "[96]", False),
        ("[1] max{x}", "[1]", False),
        ("[4096, 1024] max{x}", "[4096, 1024]", False),
    ],
)
def test_few_maxima_are_gathered_and_many_are_reduced_on_the_way(source, target, gathers):
    (chosen,) = planned(source, target, PAIR, forms=V5E).steps
    assert chosen.kind == "all_reduce"
    assert chosen.gathers == gathers
    if gathers:
        assert V5E.emitted_cost(chosen, 4) < V5E.emitted_cost(replace(chosen, gathers=False), 4)


ORDERED = ["int8", "uint32", "bfloat16", "float32", "float8_e4m3fn"]


@pytest.mark.parametrize(
    ("kind", "dtype"), [*itertools.product(("max", "min"), ORDERED), ("and", "bool"), ("or", "bool")]
)
def test_gathered_reductions_of_every_kind_of_number(kind, dtype):
    (step,) = planned(f"[8, 4] {kind}{{x}}", "[8, 4]", CUBE).steps
    parts = np.random.default_rng(0).integers(0, 2, (2, 8, 4)).astype(jnp.dtype(dtype))
    (gathered,) = (way for way in other_ways(step) if way.gathers)
    expected = COMBINE[step.code].reduce(parts.astype(bool if dtype == "bool" else np.float32), axis=0)
    found = np.asarray(redistributed(in_form(step, (gathered,)), parts))
    assert np.array_equal(found.astype(expected.dtype), expected)


def test_an_exchange_leaves_out_dims_of_size_one():
    (step,) = planned("[1, 2{x}8, 1, 8]", "[1, 8, 1, 2{x}8]", PAIR).steps
    how = emission(step)
    assert (how.before.result, how.dims, how.shape) == ((2, 8), {"split": 1, "concat": 0}, (8, 2))
    assert how.after.result == step.target.local_shape
    assert not how.before.moves
    assert not how.after.moves


def test_without_a_cost_of_copies_a_step_stays_one_collective():
    assert lines(planned(WIDE, WHOLE, PAIR)) == ['all_gather [{"x"}, {}, {"y"}]  [12, 1024, 4096]']


def test_a_plan_by_seconds_counts_copies_in_its_cost():
    steps = planned(WIDE, WHOLE, PAIR, cost=V5E)
    assert steps.cost == pytest.approx(sum(V5E.emitted_cost(s, 4) for s in steps.steps))


def test_elements_of_a_plan_taken_apart_are_those_of_its_steps():
    steps = planned(WIDE, WHOLE, PAIR, forms=V5E)
    assert steps.cost == sum(s.target.local_elements for s in steps.steps)


def test_forms_do_not_depend_on_what_was_planned_before():
    plan.cache_clear()
    cheapest_form.cache_clear()
    first = planned(WIDE, WHOLE, PAIR, forms=V5E)
    planned(WIDE, "[12, 1024, 2048{y}4096]", PAIR, forms=V5E)
    plan.cache_clear()
    cheapest_form.cache_clear()
    assert planned(WIDE, WHOLE, PAIR, forms=V5E) == first


@pytest.mark.parametrize(
    ("source", "target", "copies"),
    [
        (WIDE, WHOLE, (0, 2)),
        ("[3{x}12, 512{y}1024, 4096]", WHOLE, (0, 1)),
        ("[3{x}12, 1024, 4096]", WHOLE, (0, 0)),
        ("[12, 1024, 1024{x}4096]", WHOLE, (0, 0)),
        ("[12, 1024, 4096] sum{x} sum{y}", WIDE, (1, 0)),
        ("[8{x}32, 1024]", "[32, 256{x}1024]", (1, 1)),
        ("[8{x}32, 1024, 64]", "[32, 256{x}1024, 64]", (1, 1)),
        ("[32, 256{x}1024]", "[8{x}32, 1024]", (0, 2)),
        ("[1, 256{x}1024, 64{y}128]", "[1, 1024, 128]", (0, 2)),
        ("[4{x}16, 64] sum{y}", "[4{x}16, 64]", (0, 0)),
    ],
)
def test_copies_before_and_after_a_step_in_tiled_memory(source, target, copies):
    (step,) = planned(source, target, PAIR).steps
    before, after = local_copies(step, strided=True, tiled=True)
    assert (len(before), len(after)) == copies


def test_where_collectives_are_not_strided_a_minor_dim_is_copied_once():
    (step,) = planned("[12, 1024, 1024{x}4096]", WHOLE, PAIR).steps
    assert [len(part) for part in local_copies(step, strided=False, tiled=False)] == [0, 1]
    (step,) = planned("[3{x}12, 1024, 4096]", WHOLE, PAIR).steps
    assert local_copies(step, strided=False, tiled=False) == ((), ())


def test_where_elements_keep_their_order_only_tiles_are_copied():
    (step,) = planned("[1{x}4, 128{y}256]", "[4, 256]", PAIR).steps
    assert [len(part) for part in local_copies(step, strided=True, tiled=True)] == [0, 1]
    assert local_copies(step, strided=True, tiled=False) == ((), ())


def test_on_v3_a_reduction_over_all_devices_is_scattered_axis_by_axis():
    mesh = {"x": 16, "y": 2}
    price = RedistributionSeconds(Mesh(mesh, device="tpu_v3"))
    (step,) = planned("[3072, 768] sum{x} sum{y}", "[96{y,x}3072, 768]", mesh).steps
    cost, chosen = cheapest_form(step, 4, price)
    assert [s.text() for s in chosen] == ['reduce_scatter [{"x"}, {}]', 'reduce_scatter [{"y"}, {}]']
    assert cost < 0.8 * price.emitted_cost(step, 4)
    verify(in_form(step, chosen))
    others = RedistributionSeconds(Mesh(mesh, device="tpu_v5e"))
    assert len(cheapest_form(step, 4, others)[1]) == 1
