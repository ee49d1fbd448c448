"""Are costs the paper's Figure 11, and does a cost that tells axes apart change the plan?"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autopart.base.errors import UnknownNameError
from autopart.spmd.redistribution import AlphaBeta, DistributedTypeError, Elements
from tests.redistribution.cases import lines, planned

MESH = {"slow": 4, "fast": 4}
SLOW_AND_FAST = AlphaBeta({"slow": 1e-5, "fast": 1e-6}, {"slow": 1e9, "fast": 100e9})


@pytest.mark.parametrize(
    ("kind", "before", "after", "cost"),
    [("all_permute", 8, 8, 8), ("all_slice", 8, 2, 0), ("all_gather", 2, 8, 8), ("all_to_all", 8, 8, 8),
     ("reduce_scatter", 8, 2, 8), ("all_reduce", 8, 8, 16)],
)  # fmt: skip
def test_figure_11(kind, before, after, cost):
    assert Elements().step_cost(kind, before, after, 4, (("x", 4),)) == cost


@pytest.mark.parametrize(
    ("kind", "before", "after", "seconds"),
    [
        ("all_to_all", 4000, 4000, 1e-5 + 12000 / 1e9),
        ("all_gather", 1000, 4000, 1e-5 + 12000 / 1e9),
        ("reduce_scatter", 4000, 1000, 1e-5 + 12000 / 1e9),
        ("all_reduce", 4000, 4000, 2e-5 + 24000 / 1e9),
        ("all_permute", 4000, 4000, 1e-5 + 16000 / 1e9),
        ("all_slice", 4000, 1000, 0),
    ],
)
def test_alpha_beta_closed_forms(kind, before, after, seconds):
    assert SLOW_AND_FAST.step_cost(kind, before, after, 4, (("slow", 4),)) == pytest.approx(seconds)


def test_alpha_beta_over_two_axes_waits_for_the_slower():
    both = SLOW_AND_FAST.step_cost("all_to_all", 1600, 1600, 4, (("slow", 4), ("fast", 4)))
    assert both == pytest.approx(1.1e-5 + 6000 / 1e9)


def test_elements_gather_two_axes_at_once_and_seconds_gather_the_slow_one_first():
    source, target = "[64{slow}256, 64{fast}256]", "[256, 256]"
    assert len(planned(source, target, MESH).steps) == 1
    assert [s.mesh_axes for s in planned(source, target, MESH, cost=SLOW_AND_FAST).steps] == [("slow",), ("fast",)]


def test_axes_of_unlike_latency_are_gathered_apart_and_the_long_latency_is_paid_once():
    """One gather over both would wait for the slow axis at every hop."""
    late = AlphaBeta({"slow": 1.0, "fast": 1e-9}, {"slow": 1e9, "fast": 1e9})
    source, target = "[64{slow}256, 64{fast}256]", "[256, 256]"
    found = planned(source, target, MESH, cost=late)
    assert sorted(step.mesh_axes for step in found.steps) == [("fast",), ("slow",)]
    assert found.cost == pytest.approx(1.0, rel=1e-2)


def test_the_plan_is_no_dearer_by_its_own_cost_than_the_plan_for_elements():
    mesh = {"a": 2, "b": 2, "c": 2}
    cost = AlphaBeta({"a": 1e-6, "b": 1e-6, "c": 1e-6}, {"a": 1e9, "b": 10e9, "c": 100e9})
    for source, target in [
        ("[4{a}8, 8, 4{c}8]", "[8, 4{a}8, 4{b}8]"),
        ("[2{a,b}8, 8, 8]", "[8, 4{b}8, 8]"),
        ("[1{a,b,c}8, 8, 8]", "[8, 4{c}8, 4{a}8]"),
    ]:
        plain = planned(source, target, mesh)
        seconds = sum(
            cost.step_cost(s.kind, s.source.local_elements, s.target.local_elements, 4, s.spanned) for s in plain.steps
        )
        assert planned(source, target, mesh, cost=cost).cost <= seconds


def test_bytes_per_element_scale_seconds_and_not_elements():
    source, target = "[1{slow}4, 4096]", "[4, 1024{slow}4096]"
    free = AlphaBeta({"slow": 0.0, "fast": 0.0}, {"slow": 1e9, "fast": 1e9})
    assert planned(source, target, MESH, element_bytes=2).cost == planned(source, target, MESH).cost
    two, four = (planned(source, target, MESH, element_bytes=b, cost=free).cost for b in (2, 4))
    assert four == pytest.approx(2 * two)


def test_a_plan_is_made_once():
    assert planned("[1{slow}4, 4]", "[4, 1{slow}4]", MESH) is planned("[1{slow}4, 4]", "[4, 1{slow}4]", MESH)


def test_unknown_names_say_what_is_known():
    with pytest.raises(UnknownNameError, match="elements"):
        planned("[1{slow}4]", "[4]", MESH, cost="element")
    with pytest.raises(DistributedTypeError, match='axis "slow" has no latency'):
        planned("[1{slow}4]", "[4]", MESH, cost=AlphaBeta({"fast": 0.0}, {"fast": 1.0}))


def test_any_object_with_step_cost_will_do():
    @dataclass(frozen=True)
    class DearGathers:
        def step_cost(self, kind, elements_in, elements_out, element_bytes, axes):
            return {"all_gather": 100.0, "all_slice": 0.0}.get(kind, 1.0)

    mesh = {"x": 2, "y": 2}
    assert lines(planned("[4{x}8, 8]", "[8, 4{x}8]", mesh, cost=DearGathers())) == [
        'all_to_all {0 -> 1} <"x">  [8, 4{x}8]'
    ]
