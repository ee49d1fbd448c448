"""Programs nobody wrote, under random schedules: is the program of the plan the program of the schedule?

Ten programs share a module, and each has tactics of its own: by name, of random actions on any values, or a search.
"""

from __future__ import annotations

import re
import warnings

import autopart as ap
from tests.property.batches import Batch


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(max(1, metafunc.config.getoption("--property-cases") // 100)))


def stablehlo(low: ap.Lowered) -> str:
    """The text of what runs, without the numbers that MLIR gives to constants it leaves out."""
    return re.sub(r"__elided__(_\d+)?", "", low.as_text("stablehlo"))


def test_a_plan_gives_the_program_that_its_schedule_gave(number):
    batch = Batch.numbered(number)
    mesh = ap.Mesh(dict(batch.mesh))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        low = ap.jit(batch.__call__, mesh, batch.schedule()).lower(batch.inputs())
    plan = ap.Plan.from_json(low.plan.to_json())
    again = ap.jit(batch.__call__, mesh, plan).lower(batch.inputs())
    assert again.as_text("hlo") == low.as_text("hlo")
    assert stablehlo(again) == stablehlo(low)
    assert again.plan == plan
