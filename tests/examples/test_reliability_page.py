"""Does the page about reliability say what was measured?"""

from __future__ import annotations

import json

import pytest

from experiments.reliability import campaign, page
from experiments.reliability.__main__ import RESULTS
from experiments.reliability.promises import PROMISES, Promise, outcomes_in, row


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


REPORT = """<testsuites><testsuite>
  <testcase classname="tests.ops.test_a" name="one"/>
  <testcase classname="tests.ops.test_a.TestB" name="two"><failure/></testcase>
  <testcase classname="tests.ops_else.test_c" name="three"/>
  <testcase classname="tests.ops.test_d" name="four"><skipped/></testcase>
</testsuite></testsuites>"""


def test_outcomes_are_read_from_pytest_report_and_counted_by_promise(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert row(Promise("", "tests/ops"), outcomes_in(report)) == {"passed": 1, "failed": 1, "skipped": 1}
    assert row(Promise("", "tests/api"), outcomes_in(report)) == {"absent": "not done within its time limit"}
    assert row(Promise("", "tests/gone"), outcomes_in(report)) == {"absent": "these tests are not in this tree"}


def test_each_promise_stands_once():
    assert len({(p.tests, p.mark) for p in PROMISES}) == len(PROMISES)
