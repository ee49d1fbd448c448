"""Is planning quick enough to be done for every layout change of a large program?"""

from __future__ import annotations

import time

import numpy as np

from autopart.spmd.redistribution import plan
from experiments.redistribution.problems import PAPER, ProblemSet, draw

CUBE_OF_16 = ProblemSet("16x16x16", (("x", 16), ("y", 16), ("z", 16)), 60, 0, 16, 1e9, 1e12, (6, 6))


def planning_s(family: ProblemSet) -> np.ndarray:
    """Seconds of processor time per problem, not cached."""
    seconds = []
    for problem in draw(family):
        source, target = problem.types
        start = time.process_time()
        plan.__wrapped__(source, target)
        seconds.append(time.process_time() - start)
    return np.array(seconds)


def test_the_paper_problems_take_milliseconds():
    seconds = planning_s(PAPER)
    assert np.median(seconds) < 2e-3
    assert np.percentile(seconds, 99) < 20e-3


def test_4096_devices_and_six_dims_take_less_than_50_ms():
    assert planning_s(CUBE_OF_16).max() < 50e-3
