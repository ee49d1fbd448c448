"""Does the kernel price a plan as the plan itself is priced, whatever the shape, and from one plan for all alike?"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import autopart as ap
from autopart.core.op import MAX, SUM
from autopart.costmodel.compiled.links.plan_terms import (
    DeviceFigures,
    Sized,
    plan_terms,
    shape_class,
    shape_of,
    terms_seconds,
)
from autopart.costmodel.compiled.links.redistribution_costs import plan_cost
from autopart.costmodel.hardware.links import mesh_links
from autopart.costmodel.lower_for_device import forms_for
from autopart.search.ilp.labels import Label, distributed_types, divides, without_ones
from autopart.spmd.redistribution import plan
from autopart.spmd.redistribution.shape_classes import smallest_shape

MESHES = [
    ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3"),
    ap.Mesh({"x": 4, "y": 4, "z": 2}, device="tpu_v3"),
    ap.Mesh({"a": 6, "b": 4}, device="a100_80gb"),
]
DIMS = (1, 2, 3, 4, 12, 32, 48, 96, 128, 1000, 1024, 4096, 32000)


def label(random_: random.Random, shape: tuple[int, ...], sizes: tuple[int, ...], pending: bool) -> Label:
    """Codes that divide the shape."""
    codes = [*range(len(shape) + 1), *((SUM, MAX) if pending else ())]
    found = tuple(random_.choice(codes) for _ in sizes)
    return found if divides(shape, found, sizes) else (0,) * len(sizes)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_terms_cost_what_the_plan_of_the_very_shape_costs(mesh: ap.Mesh):
    random_, links, moved = random.Random(7), mesh_links(mesh), 0
    named = tuple(mesh.shape.items())
    for _ in range(60):
        shape = tuple(random_.choice(DIMS) for _ in range(random_.randint(1, 4)))
        source, target = (label(random_, shape, mesh.axis_sizes, p) for p in (True, False))
        element_bytes, class_ = random_.choice((1, 2, 4)), shape_class(shape, named)
        looked_at = shape_of(class_)
        ends = itertools.product(*(distributed_types(shape, each, mesh) for each in (source, target)))
        fewer = (without_ones(shape, each) for each in (source, target))
        probes = itertools.product(*(distributed_types(looked_at, each, mesh) for each in fewer))
        for (from_, to), (probe_from, probe_to) in zip(ends, probes, strict=True):
            by_hand = plan_cost(
                plan(from_, to, element_bytes=element_bytes, forms=forms_for(mesh)), element_bytes, links
            )
            terms = plan_terms(class_, probe_from, probe_to, links)
            seconds, saved = terms_seconds(terms, Sized.of(shape, element_bytes, links), DeviceFigures.of(links))
            assert seconds == pytest.approx(by_hand.seconds + by_hand.copy_s, rel=1e-9), (shape, from_, to)
            if by_hand.combinable:
                assert saved == pytest.approx(by_hand.saved_s, rel=1e-6, abs=1e-15)
            assert saved >= -1e-15, (
                "what terms of parts of axes may save is more than what they do: a bound all the same"
            )
            moved += seconds > 0
    assert moved > 30


def test_of_each_dim_a_class_keeps_what_axes_may_cut():
    mesh = (("x", 4), ("y", 6))
    assert smallest_shape((48, 7, 0, 18, 1024), mesh) == (24, 1, 0, 6, 8)
    class_ = shape_class((48, 7, 18, 8), mesh)
    assert class_ == ((24, True), (1, True), (6, True), (8, False))
    assert smallest_shape(shape_of(class_), mesh) == (24, 1, 6, 8)


def test_plans_of_one_class_take_the_same_steps():
    mesh = ap.Mesh({"x": 4, "y": 6}, device="a100_80gb")
    sizes, random_ = mesh.axis_sizes, random.Random(3)
    for _ in range(40):
        source, target = (label(random_, (48, 24, 96), sizes, False) for _ in range(2))
        one, other = (
            plan(next(distributed_types(shape, source, mesh)), next(distributed_types(shape, target, mesh)))
            for shape in ((48, 24, 96), (48 * 7, 24 * 25, 96))
        )
        assert [step.text() for step in one.steps] == [step.text() for step in other.steps]
        assert np.isclose(one.cost * 7 * 25, other.cost)
