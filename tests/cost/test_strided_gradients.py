"""Do gradients of the inputs of convolutions with strides take what the TPU compiler says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.convolution_grids import NEAR, estimated_us, kept_us, summed_up
from experiments.strided_gradients import __main__ as page
from experiments.strided_gradients.cases import Case
from tests.prompt import slow

KEPT = kept_us(Path(page.__file__).parent)
SQUARE = (32, 32)


@pytest.mark.parametrize(
    ("name", "within", "least", "geomean"),
    [
        slow("fitted, v3", 0.9, 0.7, 0.9),
        slow("fitted, v5e", 0.8, 0.45, 0.95),
        ("held out, v3", 0.7, 0.45, 0.85),
        ("held out, v5e", 0.4, 0.15, 0.7),
    ],
)
def test_estimates_are_as_near_the_compilers_as_the_page_says(name: str, within: float, least: float, geomean: float):
    programs = page.groups()[name]
    found = summed_up([estimated_us(p) / KEPT[p.name] for p in programs])
    assert found["programs"] == len(programs)
    assert found["within"] >= within
    assert found["least"] >= least
    assert geomean <= found["geomean"] <= 1.1


@pytest.mark.parametrize("topology", ["v3:2x2", "v5e:2x2"])
@pytest.mark.parametrize(
    ("images", "features", "left", "window", "stride"),
    [
        (8, 64, 64, 8, 2),
        (8, 64, 64, 8, 4),
        (8, 64, 64, 8, 8),
        (8, 128, 128, 3, 2),
        (8, 160, 160, 3, 2),
        (8, 256, 256, 3, 2),
        (1, 128, 256, 3, 2),
    ],
)
def test_a_tile_of_the_kernel_is_brought_for_each_place(
    images: int, features: int, left: int, window: int, stride: int, topology: str
):
    """Eight by eight of strides of eight are more places than the images have: no hole is skipped there."""
    case = Case(images, SQUARE, features, left, (window, window), (stride, stride), topology)
    assert NEAR[0] < estimated_us(case) / KEPT[case.name] < NEAR[1]
