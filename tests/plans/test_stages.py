"""Does a plan say which stage has which layer, who works when, and what is handed over; and do texts draw it?"""

from __future__ import annotations

from functools import partial

import pytest

import autopart as ap
from tests.numerics.test_pipelines import BP, DATA, KEY, PARAMS, plain, sgd

STEP = partial(sgd, plain)


def lowered(schedule, repeats=None):
    pipeline = ap.Pipeline("pipe", 4, {"data/*": 0}, schedule, repeats)
    return ap.jit(STEP, ap.Mesh({"pipe": 2, "data": 2}), [pipeline, BP]).lower(PARAMS, DATA, KEY)


@pytest.mark.parametrize(("schedule", "repeats"), [("gpipe", None), ("1f1b", None), ("circular", 2), ("circular", 4)])
def test_the_stages_of_a_plan_are_those_of_its_schedule(schedule, repeats, tmp_path):
    plan = lowered(schedule, repeats).plan
    stages, runs = plan.stages, repeats or 1
    assert (stages.axis, stages.stages, stages.layers, stages.microbatches) == ("pipe", 2, 8, 4)
    length = 8 // (2 * runs)
    assert stages.stage_of == tuple(layer // length % 2 for layer in range(8))
    assert stages.sent == stages.returned == ("f32[4,8,16]",)
    done = sorted((kind, tick, stage, m, r) for stage in range(2) for tick, kind, m, r in stages.work(stage))
    assert len(done) == 2 * 2 * 4 * runs
    for microbatch in range(4):
        mine = sorted((tick, stage, run) for kind, tick, stage, m, run in done if (kind, m) == ("F", microbatch))
        assert [(run, stage) for _, stage, run in mine] == [(r, s) for r in range(runs) for s in range(2)]
        back = sorted((tick, stage, run) for kind, tick, stage, m, run in done if (kind, m) == ("B", microbatch))
        assert [(run, stage) for _, stage, run in back] == [(r, s) for r in reversed(range(runs)) for s in (1, 0)]
        assert mine[-1][0] <= back[0][0]
    plan.save(tmp_path / "plan.json")
    assert ap.Plan.load(tmp_path / "plan.json").stages == stages
    assert stages.plain()["stage_of"] == stages.stage_of


def test_the_schedule_is_drawn():
    low = lowered("1f1b")
    drawn = """
1f1b along pipe: 2 stages of 4 layers, 4 microbatches, 20% of the time idle
         F F B F B F B F B B
stage 0  0 1 . 2 0 3 1 . 2 3  layers 0-3
stage 1  . 0 0 1 1 2 2 3 3 .  layers 4-7
handed on: f32[4,8,16]; back: f32[4,8,16]"""
    assert str(low.plan.stages) == drawn.strip()
    assert str(low.explain("p/layers/up")).endswith(drawn)
    assert "handed on" not in str(low.explain("p/head"))
    assert low.plan.stages.html().count('class="idle"') == drawn.count(" .")


def test_a_plan_without_a_pipeline_has_no_stages():
    assert ap.jit(STEP, ap.Mesh({"data": 2}), [BP]).lower(PARAMS, DATA, KEY).plan.stages is None


def test_the_report_draws_the_stages(tmp_path):
    low = lowered("gpipe")
    low.report(tmp_path / "report.html")
    assert low.plan.stages.html() in (tmp_path / "report.html").read_text()
