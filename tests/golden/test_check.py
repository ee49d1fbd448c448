"""Does the helper of the golden tests fail where one of its five checks should?"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import autopart as ap
from autopart.core.doors.jax_internals import parse_module
from tests.golden.check import _check_same_numbers, check, collectives_in

MESH = ap.Mesh({"a": 2})
TILE = [ap.ManualPartition({"x": 0}, axis="a")]
X = jax.ShapeDtypeStruct((4, 4), "float32")
TOTAL = """
func @main(%x: tensor<2x4xf32>) mesh {"a":2} {
  %1 = constant 0.0 : tensor<f32>
  %2 = reduce(%x, %1) {dimensions=[0], region=add} : tensor<4xf32>
  %2.r0 = all_reduce <"a"> %2 : tensor<4xf32>
  return %2.r0
}
"""

LOOP_AND_BRANCH = """
func.func @main(%x: tensor<2xf32>, %n: tensor<i32>) -> tensor<2xf32> {
  %r:2 = stablehlo.while(%c = %x, %i = %n) : tensor<2xf32>, tensor<i32>
    cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %b = "stablehlo.case"(%i) ({
        %s = "stablehlo.all_reduce"(%c) ({
        ^bb0(%a: tensor<f32>, %d: tensor<f32>):
          %t = stablehlo.add %a, %d : tensor<f32>
          "stablehlo.return"(%t) : (tensor<f32>) -> ()
        }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
        "stablehlo.return"(%s) : (tensor<2xf32>) -> ()
      }) : (tensor<i32>) -> tensor<2xf32>
      stablehlo.return %b, %i : tensor<2xf32>, tensor<i32>
    }
  %m = "stablehlo.collective_permute"(%r#0) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %m : tensor<2xf32>
}
"""


def total(x):
    return x.sum(0)


def test_what_is_right_passes():
    check(total, MESH, TILE, [X], collectives={"all_reduce": 1}, hlo=TOTAL)


def test_another_text_is_found():
    with pytest.raises(AssertionError, match="tensor<8xf32>"):
        check(total, MESH, TILE, [X], collectives={"all_reduce": 1}, hlo=TOTAL.replace("4xf32>", "8xf32>"))


@pytest.mark.parametrize("counts", [{}, {"all_reduce": 2}, {"all_reduce": 1, "all_gather": 1}, {"all_reduced": 1}])
def test_other_counts_are_found(counts):
    with pytest.raises(AssertionError):
        check(total, MESH, TILE, [X], collectives=counts)


def test_counts_that_the_exported_module_does_not_have_are_found(monkeypatch):
    monkeypatch.setattr("tests.golden.check.collectives_in", lambda module, trips: collectives_in(parse_module("")))
    with pytest.raises(AssertionError):
        check(total, MESH, TILE, [X], collectives={"all_reduce": 1})


def test_collectives_are_counted_in_regions_and_as_often_as_a_loop_runs():
    counts = dict.fromkeys(("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "all_permute"), 0)
    module = parse_module(LOOP_AND_BRANCH)
    assert collectives_in(module) == counts | {"all_reduce": 1, "all_permute": 1}
    assert collectives_in(module, trips=7) == counts | {"all_reduce": 7, "all_permute": 1}


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (np.array([3.0, 5.0], "f4"), np.array([3.0, 5.0001], "f4")),
        (np.array([3, 5]), np.array([3, 6])),
        (np.array([0.5], "f4"), np.array([0.501], "f4")),
        (np.array([0.5], "f4"), np.array([0.5])),
        ([np.ones(2)], [np.ones(2), np.ones(2)]),
        ([], []),
    ],
)
def test_other_numbers_dtypes_and_structures_are_found(expected, found):
    with pytest.raises(AssertionError):
        _check_same_numbers(expected, found)


def test_floats_that_are_not_whole_may_differ_by_their_rounding():
    _check_same_numbers(np.array([0.5], "f4"), np.array([0.500001], "f4"))


def test_the_unpartitioned_program_is_what_the_numbers_are_compared_with(monkeypatch):
    monkeypatch.setattr("tests.golden.check._unpartitioned", lambda program: lambda x: x.sum(0) + 1)
    with pytest.raises(AssertionError, match="not equal"):
        check(total, MESH, TILE, [X], collectives={"all_reduce": 1})
