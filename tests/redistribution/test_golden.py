"""The paper's examples: does the planner find what the paper finds, or better, and say so in its terms?"""

from __future__ import annotations

import pytest

from autopart.spmd.redistribution import rules, verify
from autopart.spmd.redistribution.device_map import rewritten
from autopart.spmd.redistribution.primes import decompositions
from tests.redistribution.cases import lines, planned, typed

XY = {"x": 4, "y": 4}

FIGURE_5 = [
    # One problem per row, with the two sequences of collectives that the paper gives for it.
    (
        "[32{x,y}512, 128]",
        [
            [("all_permute", "[32{y,x}512, 128]"), ("all_to_all", "[128{x}512, 32{y}128]")],
            [("all_to_all", "[128{y}512, 32{x}128]"), ("all_permute", "[128{x}512, 32{y}128]")],
        ],
    ),
    (
        "[32{x}128, 512, 32{y}128]",
        [
            [("all_to_all", "[128, 128{x}512, 32{y}128]"), ("all_to_all", "[128, 32{y,x}512, 128]")],
            [
                ("all_to_all", "[32{x}128, 128{y}512, 128]"),
                ("all_to_all", "[128, 32{x,y}512, 128]"),
                ("all_permute", "[128, 32{y,x}512, 128]"),
            ],
        ],
    ),
    (
        "[32{x}128, 512, 32{y}128]",
        [
            [("all_gather", "[128, 512, 32{y}128]"), ("all_to_all", "[128, 128{y}512, 128]")],
            [("all_to_all", "[32{x}128, 128{y}512, 128]"), ("all_gather", "[128, 128{y}512, 128]")],
        ],
    ),
]


def changes(before, after):
    """The axes that each dim loses and gains."""
    taken, added = {}, {}
    for dim, (old, new) in enumerate(zip(before.axes, after.axes, strict=True)):
        if len(old) > len(new):
            taken[dim] = old[: len(old) - len(new)]
        elif len(new) > len(old):
            added[dim] = new[: len(new) - len(old)]
    return taken, added


def by_rule(kind, before, after):
    taken, added = changes(before, after)
    if kind == "all_to_all":
        return rules.all_to_all(before, taken, added)
    return rules.all_gather(before, taken) if kind == "all_gather" else rules.all_permute(before, after)


def figure_11(source, sequence):
    total, here = 0, typed(source, XY)
    for kind, text in sequence:
        after = typed(text, XY)
        total += after.local_elements if kind == "all_gather" else here.local_elements
        here = after
    return total


@pytest.mark.parametrize(("source", "sequences"), FIGURE_5)
def test_figure_5_sequences_are_typed_by_the_rules(source, sequences):
    for sequence in sequences:
        here = typed(source, XY)
        for kind, text in sequence:
            here = by_rule(kind, here, typed(text, XY))
            assert str(here) == text


@pytest.mark.parametrize(("source", "sequences"), FIGURE_5)
def test_figure_5_plans_cost_no_more_than_the_paper_sequences(source, sequences):
    target = sequences[0][-1][1]
    steps = planned(source, target, XY)
    verify(steps)
    assert steps.cost <= min(figure_11(source, s) for s in sequences)


def test_figure_5_second_row_is_one_all_to_all_over_two_pairs_of_dims():
    steps = planned("[32{x}128, 512, 32{y}128]", "[128, 32{y,x}512, 128]", XY)
    assert lines(steps) == ['all_to_all {0,2 -> 1} <"x", "y">  [128, 32{y,x}512, 128]']
    assert steps.cost == 32 * 512 * 32


def test_example_3_1_swaps_through_factors_at_height_1():
    steps = planned("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})
    verify(steps)
    assert [s.kind for s in steps.steps] == ["all_to_all", "all_to_all", "all_permute"]
    assert (steps.cost, steps.height) == (18, 1)
    assert sorted(s.target.local_shape for s in steps.steps[:1]) == [(6, 1)]


def test_example_3_1_as_the_paper_spells_it():
    """The paper's sequence on {x1:2, x2:2, y1:3, y2:2}, step by step; it moves a tile of 6 four times."""
    mesh = {"x2": 2, "x1": 2, "y2": 2, "y1": 3}
    here = typed("[3{x1,x2}12, 2{y1,y2}12]", mesh)
    for kind, text in [
        ("all_to_all", "[1{y1,x1,x2}12, 6{y2}12]"),
        ("all_permute", "[1{x1,y1,x2}12, 6{y2}12]"),
        ("all_to_all", "[2{y1,x2}12, 3{x1,y2}12]"),
        ("all_permute", "[2{y1,y2}12, 3{x1,x2}12]"),
    ]:
        here = by_rule(kind, here, typed(text, mesh))
        assert str(here) == text


EIGHTS = ["[1{a0,a1,a2}8, 8]", "[8, 1{a0,a1,a2}8]"]
A012 = {"a2": 2, "a1": 2, "a0": 2}


def test_example_4_9_is_one_all_to_all():
    steps = planned("[1{a}8, 8]", "[8, 1{a}8]", {"a": 8})
    assert lines(steps) == ['all_to_all {0 -> 1} <"a">  [8, 1{a}8]']
    assert steps.cost == 8


def test_example_4_9_normal_form_by_rewriting_is_six_steps():
    here = typed(EIGHTS[0], A012)
    for kind, text in [
        ("all_to_all", "[2{a1,a2}8, 4{a0}8]"),
        ("all_permute", "[2{a2,a1}8, 4{a0}8]"),
        ("all_to_all", "[4{a1}8, 2{a2,a0}8]"),
        ("all_permute", "[4{a1}8, 2{a0,a2}8]"),
        ("all_to_all", "[8, 1{a1,a0,a2}8]"),
        ("all_permute", "[8, 1{a0,a1,a2}8]"),
    ]:
        here = by_rule(kind, here, typed(text, A012))
        assert str(here) == text


def test_example_6_8_moves_the_permutation_to_the_end():
    here = typed(EIGHTS[0], A012)
    for kind, text in [
        ("all_to_all", "[2{a1,a2}8, 4{a0}8]"),
        ("all_to_all", "[4{a2}8, 2{a1,a0}8]"),
        ("all_to_all", "[8, 1{a2,a1,a0}8]"),
        ("all_permute", "[8, 1{a0,a1,a2}8]"),
    ]:
        here = by_rule(kind, here, typed(text, A012))
        assert str(here) == text


def test_example_6_8_takes_any_axis_under_a_device_map():
    """Sequence (10) takes a2 first, which is not minor-most: the array is looked at under another device map."""
    (axes,) = decompositions(tuple(A012.items()))
    a2, a1, a0 = (axes.number[name, 1] for name in ("a2", "a1", "a0"))
    steps = [
        (((a2, a1, a0), ()), ((a1, a0, a2), ())),
        (((a1, a0), (a2,)), ((a0, a1), (a2,))),
    ]
    devices = None
    for layout, view in steps:
        before = typed("[8, 8]", A012)
        kinds = []
        for dims, mapped in ((layout, devices), (view, rewritten(axes, layout, view, devices))):
            minor_first = tuple(tuple(axes.axes[a] for a in reversed(dim)) for dim in dims)
            kinds.append(type(before)(before.shape, minor_first, before.mesh, (), mapped))
        assert (kinds[0].base_offsets() == kinds[1].base_offsets()).all()
        devices = kinds[1].devices
    assert devices != tuple(range(8))


def test_example_7_1_merges_three_all_to_alls_into_one():
    steps = planned(*EIGHTS, A012)
    assert [s.kind for s in steps.steps] == ["all_to_all"]
    assert steps.cost == 8
    assert planned("[1{a0,a1,a2}8, 8]", "[8, 1{a1,a0,a2}8]", A012).cost == 8


def test_figure_12_over_partitions_along_a_replicated_axis():
    """On {x:4, y:2, z:4}: moving x and dropping y exchanges tiles a quarter the size when z cuts them first."""
    mesh = {"x": 4, "y": 2, "z": 4}
    source, target = "[2{y,x}16, 16]", "[16, 4{x}16]"
    steps = planned(source, target, mesh)
    verify(steps)
    without = planned(source, target, {"x": 4, "y": 2})
    assert (without.cost, steps.cost) == (32 + 64, 8 + 64)
    assert "z" in steps.steps[0].mesh_axes
    assert [s.kind for s in steps.steps][::2] == ["all_slice", "all_gather"]
    assert [s.source.local_elements for s in steps.steps] == [32, 8, 8]


FIGURE_13 = {
    "P1": ("[360, 184{c:2}368, 320]", "[90{c:2,a:2}360, 368, 160{b:2}320]", 0.25, ["all_slice", "all_to_all"]),
    "P2": ("[80, 40{c:2}80, 72, 64]", "[40{b:2}80, 80, 36{c:2}72, 64]", 0.5, ["all_slice", "all_to_all"]),
    "P3": ("[296, 360, 156{c:2}312]", "[74{b:2,c:2}296, 180{a:2}360, 312]", 0.25, ["all_slice", "all_to_all"]),
    "P4": (
        "[8{c:2}16, 16, 16, 8{a:2}16, 16, 8{b:2}16]",
        "[16, 16, 16, 16, 16, 8{a:2}16]",
        1.25,
        ["all_permute", "all_gather"],
    ),
}


@pytest.mark.parametrize("name", FIGURE_13)
def test_figure_13_problems(name):
    """The paper loses P4 to XLA for want of a gather over two dims; P1 to P3 only where latency counts."""
    source, target, share, kinds = FIGURE_13[name]
    mesh = {"a": 2, "b": 2, "c": 2}
    steps = planned(source, target, mesh)
    verify(steps)
    largest = max(typed(t, mesh).local_elements for t in (source, target))
    assert (steps.cost / largest, steps.height) == (share, 1)
    assert [s.kind for s in steps.steps] == kinds


def test_section_7_3_takes_the_axis_of_the_target():
    """[16] to [4{x}16]: the slice is along x, not along y with a permutation after it."""
    assert lines(planned("[16]", "[4{x}16]", XY)) == ['all_slice [{"x"}]  [4{x}16]']


def test_listing_3_redistribution_is_one_all_to_all():
    steps = planned("[32, 64{devs}2048]", "[1{devs}32, 2048]", {"devs": 32})
    assert lines(steps) == ['all_to_all {1 -> 0} <"devs">  [1{devs}32, 2048]']


def test_permutation_comes_before_the_final_gather():
    """Section 7.3: a permutation that is needed moves small tiles."""
    mesh = {"x": 2, "y": 2, "z": 2}
    steps = planned("[2{x,y}8, 8]", "[4{x}8, 8]", mesh)
    assert [s.kind for s in steps.steps] == ["all_slice", "all_permute", "all_gather"]
    assert steps.cost == 8 + 32
