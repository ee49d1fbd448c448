"""Which gathers and reductions does the TPU compiler do whole, as all_reduces, and does the price know?

What libtpu 0.0.51 made of small programs: one collective alone, or the gradient of a convolution or of a product that
is reduced into tiles of its weight, over 16 devices of v3:4x4 and 4 of v5e:2x4.
"""

from __future__ import annotations

import pytest

import autopart as ap
from autopart.core.op import SUM
from autopart.costmodel import RedistributionSeconds
from autopart.costmodel.compiled.links.redistribution_seconds import is_aligned
from autopart.costmodel.hardware.links import mesh_links
from autopart.search.ilp.labels import distributed_types
from autopart.spmd.redistribution import Step, plan

V3 = ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3")
V5E = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e")

GATHERS = {
    V3: [
        ((320,), 0, False), ((1280,), 0, False), ((2048,), 0, True), ((16_000_000,), 0, False), ((16, 512), 0, True),
        ((80, 512), 0, True), ((64, 320), 1, True), ((4096, 80), 1, True), ((3, 3, 320, 320), 2, True),
        ((3, 3, 320, 320), 3, True), ((1, 320), 1, False), ((16, 4096), 0, True),
    ],
    V5E: [
        ((80,), 0, False), ((512,), 0, True), ((640,), 0, False), ((4, 20), 0, True), ((20, 512), 0, True),
        ((512, 20), 1, True), ((64, 256), 1, True), ((3, 320, 80), 2, True), ((3, 3, 320, 80), 3, True),
    ],
}  # fmt: skip
"""(shape of the whole, dim that is gathered, whether it stayed an all_gather)."""

REDUCTIONS = {
    V3: [
        ((4096,), 0, False), ((16_777_216,), 0, False), ((3, 3, 640, 320), 2, True), ((3, 3, 320, 320), 2, False),
        ((3, 3, 320, 640), 2, False), ((3, 3, 960, 320), 2, False), ((3, 3, 960, 640), 2, False),
        ((3, 3, 640, 640), 2, True), ((3, 3, 1280, 320), 2, True), ((3, 3, 640, 320), 3, False),
        ((3, 3, 320, 640), 3, True), ((3, 3, 320, 320), 3, False), ((1, 1, 640, 320), 2, True), ((640, 320), 0, True),
        ((768, 1000), 0, True), ((1024, 64), 0, True), ((64, 1024), 1, False), ((512, 64), 0, True),
        ((1280, 320), 0, True), ((320, 1280), 1, True), ((320, 1280), 0, True), ((640, 320), 1, False),
        ((768, 768), 0, True),
    ],
    V5E: [
        ((512,), 0, False), ((3, 3, 640, 320), 2, True), ((3, 3, 320, 320), 2, True), ((3, 3, 320, 640), 2, True),
        ((3, 3, 960, 320), 2, False), ((3, 3, 960, 640), 2, True), ((3, 3, 640, 640), 2, True),
        ((3, 3, 1280, 320), 2, True), ((3, 3, 640, 320), 3, True), ((3, 3, 320, 640), 3, True),
        ((3, 3, 320, 320), 3, True), ((1, 1, 640, 320), 2, True), ((640, 320), 0, True), ((768, 1000), 0, True),
        ((1024, 64), 0, True), ((64, 1024), 1, True), ((512, 64), 0, True), ((1280, 320), 0, True),
        ((320, 1280), 1, False), ((320, 1280), 0, True), ((640, 320), 1, True), ((768, 768), 0, True),
    ],
}  # fmt: skip
"""(shape, dim into whose tiles it is reduced, whether it stayed a reduce_scatter)."""


def only_step(shape: tuple[int, ...], source: int, target: int, mesh: ap.Mesh) -> Step:
    """The step between two labels on the batch axis."""
    (from_,), (to,) = (distributed_types(shape, (code, 0), mesh) for code in (source, target))
    (step,) = plan(from_, to).steps
    return step


@pytest.mark.parametrize("mesh", GATHERS, ids=str)
def test_every_gather_that_the_compiler_keeps_is_priced_as_one(mesh: ap.Mesh):
    device = mesh_links(mesh).device
    for shape, dim, kept in GATHERS[mesh]:
        assert is_aligned(only_step(shape, dim + 1, 0, mesh), device) == kept, (shape, dim)


@pytest.mark.parametrize(("mesh", "off"), [(V3, 2), (V5E, 2)], ids=str)
def test_nearly_every_reduction_is_priced_as_the_compiler_does_it(mesh: ap.Mesh, off: int):
    device = mesh_links(mesh).device
    steps = [(only_step(shape, SUM, dim + 1, mesh), kept) for shape, dim, kept in REDUCTIONS[mesh]]
    assert sum(is_aligned(step, device) != kept for step, kept in steps) == off


def test_a_gather_of_columns_costs_half_of_the_sum_of_the_whole():
    gather, sum_ = only_step((4096, 512), 2, 0, V3), only_step((4096, 512), SUM, 0, V3)
    price = RedistributionSeconds(V3)
    assert price.emitted_cost(gather, 4) == pytest.approx(price.emitted_cost(sum_, 4) / 2, rel=0.05)
