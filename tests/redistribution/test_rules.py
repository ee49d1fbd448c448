"""Does each collective have the type that Figure 8 of the paper gives it, and only that?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from autopart.spmd.redistribution import DistributedTypeError, SubAxis, rules, verify
from tests.redistribution.cases import planned, typed

MESH = {"x": 4, "y": 6, "z": 2}


def test_all_gather_takes_the_minor_axis():
    assert str(rules.all_gather(typed("[1{y,x}24, 8]", MESH), {0: "y"})) == "[6{x}24, 8]"


def test_all_gather_of_an_axis_that_is_not_minor_is_an_error():
    with pytest.raises(DistributedTypeError, match="not the minor end"):
        rules.all_gather(typed("[1{y,x}24, 8]", MESH), {0: "x"})


def test_all_gather_takes_the_minor_part_of_an_axis():
    kind = rules.all_gather(typed("[3{x}12, 8]", MESH), {0: SubAxis("x", 2, 1)})
    assert str(kind) == "[6{x:(2)2}12, 8]"


def test_all_gather_of_several_dims_is_one_step():
    assert str(rules.all_gather(typed("[3{x}12, 4{y}24]", MESH), {0: "x", 1: "y"})) == "[12, 24]"


def test_all_slice_adds_a_minor_axis():
    assert str(rules.all_slice(typed("[6{x}24, 8]", MESH), {0: "y"})) == "[1{y,x}24, 8]"


def test_all_slice_along_an_axis_in_use_is_an_error():
    with pytest.raises(DistributedTypeError, match="used twice"):
        rules.all_slice(typed("[6{x}24, 8]", MESH), {1: "x"})


def test_all_slice_of_a_tile_too_small_is_an_error():
    with pytest.raises(DistributedTypeError, match="cannot be cut"):
        rules.all_slice(typed("[3{x}12]", MESH), {0: "z"})


def test_all_to_all_moves_axes_between_dims():
    kind = typed("[1{y,x}24, 6, 4]", MESH)
    assert str(rules.all_to_all(kind, {0: "y"}, {1: "y"})) == "[6{x}24, 1{y}6, 4]"
    assert str(rules.all_to_all(kind, {0: ("y", "x")}, {1: "y", 2: "x"})) == "[24, 1{y}6, 1{x}4]"


def test_all_to_all_adds_what_it_takes():
    with pytest.raises(DistributedTypeError, match="adds the axes that it takes"):
        rules.all_to_all(typed("[6{x}24, 6]", MESH), {0: "x"}, {1: "z"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[64{b,a}1024, 128]", "[64{a,b}1024, 128]"),
        ("[32{a}128, 16{b}64]", "[32{b}128, 16{a}64]"),
        ("[32{a}128]", "[32{b}128]"),
    ],
)
def test_all_permute_of_figure_3(before, after):
    mesh = {"a": 4, "b": 4}
    assert rules.all_permute(typed(before, mesh), typed(after, mesh)) == typed(after, mesh)


def test_all_permute_between_different_tiles_is_an_error():
    with pytest.raises(DistributedTypeError, match="local shapes"):
        rules.all_permute(typed("[6{x}24]", MESH), typed("[4{y}24]", MESH))


def test_reductions_leave_the_type_as_they_are_done():
    kind = typed("[24, 8] sum{x} sum{y}", MESH)
    assert str(rules.reduce_scatter(kind, {0: "y"})) == "[4{y}24, 8] sum{x}"
    assert str(rules.all_reduce(kind, ("x", "y"))) == "[24, 8]"


def test_a_reduction_inside_another_kind_comes_first():
    kind = typed("[24] max{x} sum{y}", MESH)
    assert str(rules.all_reduce(kind, ("y",))) == "[24] max{x}"
    with pytest.raises(DistributedTypeError, match="another reduction to do first"):
        rules.all_reduce(kind, ("x",))


def test_verify_accepts_a_plan_and_rejects_each_way_of_breaking_it():
    steps = planned("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})
    verify(steps)
    first = steps.steps[0]
    with pytest.raises(DistributedTypeError, match="the plan leads to"):
        verify(replace(steps, steps=steps.steps[:-1]))
    with pytest.raises(DistributedTypeError, match="continues from"):
        verify(replace(steps, steps=steps.steps[1:]))
    with pytest.raises(DistributedTypeError, match="places tiles differently"):
        verify(replace(steps, steps=(replace(first, view=steps.target), *steps.steps[1:])))
    with pytest.raises(DistributedTypeError, match="leads from"):
        verify(replace(steps, steps=(replace(first, target=steps.target), *steps.steps[1:])))
