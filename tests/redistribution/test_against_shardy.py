"""Never dearer than Shardy's own planner, which ships in jaxlib: a part of the experiment's problems."""

from __future__ import annotations

import pytest

from autopart.spmd.redistribution import plan
from experiments.redistribution.problems import PAPER, UNEVEN, draw
from experiments.redistribution.shardy import Shardy


@pytest.mark.parametrize(("family", "every"), [(PAPER, 10), (UNEVEN, 5)], ids=["2x2x2", "4x6"])
def test_plans_cost_no_more_than_shardy_and_hold_no_more(family, every):
    shardy = Shardy()
    for problem in draw(family)[::every]:
        steps = plan(*problem.types)
        assert steps.cost <= shardy(problem).cost, steps
        assert steps.height <= 1, steps
