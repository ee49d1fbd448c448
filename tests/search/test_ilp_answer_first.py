"""Where seconds count, does the answer come before plans and the bound, and does each still have its turn?"""

from __future__ import annotations

import pytest

import autopart as ap
from autopart.search.budget import Budget
from autopart.search.contract import run
from autopart.search.ilp import answer_first, planning

OPTIMIZERS = [pytest.param(ap.ILP(), id="ilp"), pytest.param(ap.Hybrid(), id="hybrid")]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tree_search_has_all_evaluations_and_the_bound_comes_after_them(optimizer):
    enough = Budget(80, 1000.0)
    tree, found = run("mcts", enough), run(optimizer, enough)
    assert found.actions == tree.actions
    assert found.report["history"] == tree.report["history"]
    assert found.report["rounds"] == []
    assert found.report["stopped"] == "budget"
    assert 0 < found.report["lower_bound"] <= found.report["best"]["score"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("evaluations", [0, 1, 7])
def test_budget_that_the_named_schedules_take_leaves_a_bound_without_plans(evaluations, optimizer):
    report, enough = run(optimizer, Budget(evaluations)).report, run(optimizer, Budget(80)).report
    assert report["evaluations"] == evaluations
    assert report["stopped"] == "budget"
    assert report["rounds"] == report["notes"] == []
    assert report["lower_bound"] == enough["lower_bound"]
    assert report["gap"] == pytest.approx(1 - report["lower_bound"] / report["best"]["score"])


def test_budget_that_the_named_schedules_take_leaves_the_reason_why_there_is_no_bound():
    report = run(ap.ILP(), Budget(3), objective=lambda cost: cost.peak_bytes).report
    assert "lower_bound" not in report
    assert report["no_bound"]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_search_that_finds_nothing_better_has_plans_and_the_bound_before_its_seconds_end(optimizer, monkeypatch):
    for share in ("IDLE", "IDLE_BOUND", "LEAST_SEARCHED"):
        monkeypatch.setattr(answer_first, share, 0.0)
    report = run(optimizer, Budget(None, 20.0)).report
    assert report["rounds"]
    assert 0 < report["lower_bound"] <= report["best"]["score"]


def test_model_that_takes_longer_than_the_seconds_is_not_built_and_the_report_says_so(monkeypatch):
    monkeypatch.setattr(planning, "MODELLED_PER_S", 1e-3)
    report = run(ap.ILP(), Budget(60, 100.0)).report
    assert report["evaluations"] == 60
    assert report["rounds"] == []
    assert "lower_bound" not in report
    assert any("no time for a bound" in note for note in report["notes"])


def test_neighbourhoods_wait_for_so_many_waves_without_a_better_state():
    planned = _Planner()
    with answer_first.Turns(planned, rounds=1, width=4, patience=3).around():
        for wave in range(12):
            planned.problem.best = "another" if wave >= 4 else None
            planned.problem.after_wave()
    assert planned.asked == ["bound", "plan", "parts", "parts", "parts"]


class _Planner:
    """A planner that notes who has a turn; of a problem where only evaluations count."""

    def __init__(self):
        self.problem, self.asked, self.rounds = _Problem(), [], [0.5]
        self.built_s = self.bound_built_s = 0.0

    def round(self, seconds: float) -> bool:
        self.asked.append("plan")
        return False

    def neighbourhoods(self, width: int, random) -> bool:
        self.asked.append("parts")
        return False

    def bound(self, seconds: float) -> None:
        self.asked.append("bound")


class _Problem:
    seconds_left, seconds_share, seed, best, after_wave = float("inf"), 0.0, 0, None, None
