"""Is planning quick enough to be done for every layout change of a large program?"""

from __future__ import annotations

import time

import numpy as np
import pytest

from autopart.base.gc_pause import gc_paused
from autopart.spmd.redistribution import AlphaBeta, DistributedType, plan
from autopart.spmd.redistribution.primes import decompositions
from experiments.redistribution.problems import PAPER, ProblemSet, draw

USUAL = ("[{x}, {}] -> [{}, {x}]", "[{x}, {}] -> [{}, {}]", "[{}, {}] -> [{x}, {}]", "[{x,y}, {}] -> [{y}, {x}]")
"""Layout changes of two dims; each mesh has x, and y where it has two axes or more."""

MESHES = [
    *({"x": n} for n in (64, 1024, 2520, 2880, 3072, 4080, 4095, 4096)),
    *({"x": n, "y": m} for n, m in ((64, 64), (2048, 2), (2, 2048), (1260, 2), (45, 91), (60, 60))),
    {"x": 16, "y": 16, "z": 16},
    {"xyabcdefghij"[i]: 2 for i in range(12)},
]

CUBE_OF_16 = ProblemSet("16x16x16", (("x", 16), ("y", 16), ("z", 16)), 60, 0, 16, 1e9, 1e12, (6, 6))


def planning_s(source: DistributedType, target: DistributedType, cost: AlphaBeta | str = "elements") -> float:
    """Seconds of this thread's processor time, nothing cached, no garbage of other tests collected on the way."""
    decompositions.cache_clear()
    with gc_paused():
        start = time.thread_time()
        plan.__wrapped__(source, target, cost=cost)
        return time.thread_time() - start


def family_s(family: ProblemSet) -> np.ndarray:
    """`planning_s` of each problem."""
    return np.array([planning_s(*problem.types) for problem in draw(family)])


def test_the_paper_problems_take_milliseconds():
    seconds = family_s(PAPER)
    assert np.median(seconds) < 2e-3
    assert np.percentile(seconds, 99) < 20e-3


def test_4096_devices_and_six_dims_take_less_than_50_ms():
    assert family_s(CUBE_OF_16).max() < 50e-3


def usual_problems(mesh: dict[str, int]) -> list[tuple[DistributedType, DistributedType]]:
    """The `USUAL` changes that the axes of `mesh` can make, of an array that every axis divides."""
    shape = (np.prod(list(mesh.values())) * 4,) * 2
    changes = [text.split(" -> ") for text in USUAL if "y" in mesh or "y" not in text]
    return [tuple(DistributedType.of(shape, axes_per_dim(layout), mesh) for layout in change) for change in changes]


def axes_per_dim(text: str) -> list[list[str]]:
    """`[{x,y}, {}]` as [["x", "y"], []]."""
    return [[name for name in dim.split(",") if name] for dim in text[2:-2].split("}, {")]


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: "x".join(map(str, mesh.values())))
def test_up_to_4096_devices_on_one_axis_or_twelve_take_less_than_a_second_cold(mesh: dict[str, int]):
    seconds = AlphaBeta(dict.fromkeys(mesh, 1e-6), dict.fromkeys(mesh, 1e9))
    for source, target in usual_problems(mesh):
        for cost in ("elements", seconds):
            assert planning_s(source, target, cost) < 1.0, f"{source} -> {target}"
