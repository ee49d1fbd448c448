"""What is not a redistribution: does the error say why?"""

from __future__ import annotations

import pytest

from autopart.spmd.redistribution import DistributedTypeError, plan
from tests.redistribution.cases import planned, typed

MESH = {"x": 4}


def test_different_shapes():
    with pytest.raises(DistributedTypeError, match="different shapes"):
        planned("[2{x}8]", "[16]", MESH)


def test_different_meshes():
    with pytest.raises(DistributedTypeError, match="different meshes"):
        plan(typed("[2{x}8]", MESH), typed("[4{x}8]", {"x": 2}))


def test_a_target_that_awaits_a_reduction_the_source_does_not():
    with pytest.raises(DistributedTypeError, match="no collective leaves"):
        planned("[8]", "[8] sum{x}", MESH)


def test_axes_cut_in_ways_that_do_not_fit():
    with pytest.raises(DistributedTypeError, match="is cut at"):
        planned("[6{x:(1)2}12]", "[4{x:(1)3}12]", {"x": 12})
