"""Does the page about reliability say what was measured?"""

from __future__ import annotations

import json

import pytest

from experiments.reliability import campaign, page
from experiments.reliability.__main__ import RESULTS
from experiments.reliability.promises import PROMISES, counts


def test_page_is_what_the_results_say():
    assert page.PAGE.read_text() == page.text(json.loads(RESULTS.read_text()))


def test_every_failure_in_the_figures_has_its_seed():
    found = [
        campaign.Result(7, "mismatch", "result 0", ""),
        campaign.Result(8, "crash", "", campaign.JAX_DIES),
    ]
    figures = campaign.counted(found, 10, 1, 0.5)
    assert (figures["mismatches"], figures["crashes"], figures["excepted"]) == (1, 0, 1)
    assert [f["seed"] for f in figures["failures"]] == [7]
    assert [f["seed"] for f in figures["exceptions"]] == [8]


def test_child_that_dies_is_a_crash_and_one_that_is_silent_a_timeout(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "command_of", lambda mode, numbers: ["python3", "-c", "import os; os.abort()"])
    assert campaign.run_child("batches", [0], 60) == (0, [], "crash")
    monkeypatch.setattr(campaign, "command_of", lambda mode, numbers: ["python3", "-c", "import time; time.sleep(60)"])
    assert campaign.run_child("batches", [0], 0.2) == (0, [], "timeout")


def test_outcomes_are_read_from_pytest_report(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="2" errors="1" skipped="1"/></testsuites>')
    assert counts(report) == {"passed": 5, "failed": 3, "skipped": 1}


def test_each_promise_stands_once():
    assert len({(p.tests, p.mark) for p in PROMISES}) == len(PROMISES)
