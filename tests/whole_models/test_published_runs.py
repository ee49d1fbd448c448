"""Are estimates close to the tokens per second that others have published of their training runs?"""

from __future__ import annotations

import json

import pytest

from experiments.published_runs.__main__ import HERE, RESULTS, said, summary, table
from tests.own_process import said_by

CHEAP = ("Llama-2-70B, 256 v5p", "Llama-2-7B, 8 H100")
LEAST, MOST = 0.8, 1.25

RUNS = "import json; from experiments.published_runs.runs import runs; print(json.dumps({}))"


def test_published_runs_are_estimated_within_a_quarter():
    found = said_by(RUNS.format(f"[runs()[name].row()['ratio'] for name in {CHEAP}]"))
    assert [ratio for ratio in found if not LEAST <= ratio <= MOST] == []


@pytest.mark.slow
def test_every_tpu_run_is_within_a_quarter_and_the_order_is_that_of_the_runs():
    found = summary(said_by(RUNS.format("[run.row() for run in runs().values() if run.on_tpu]")))
    assert found["least"] >= LEAST, found
    assert found["most"] <= MOST, found
    assert found["mean_error"] <= 0.09, found
    assert found["spearman"] >= 0.98, found


def test_the_page_shows_what_is_kept():
    kept, page = json.loads(RESULTS.read_text()), (HERE / "README.md").read_text()
    assert table(kept["rows"]) in page
    assert said(kept["summary"]) in page
    assert [row["name"] for row in kept["rows"]] == said_by(RUNS.format("list(runs())"))


@pytest.mark.slow
def test_runs_on_gpus_are_within_their_bars_and_in_order():
    found = said_by(RUNS.format("[run.row() | {'cohort': run.cohort} for run in runs().values() if not run.on_tpu]"))
    near = [row["ratio"] for row in found if row["cohort"] == "A100, and one node"]
    far = [row["ratio"] for row in found if row["cohort"] != "A100, and one node"]
    assert sum(LEAST <= ratio <= MOST for ratio in near) >= 0.85 * len(near), near
    assert sum(0.7 <= ratio <= 1.5 for ratio in far) >= 0.75 * len(far), far
    assert summary(found)["spearman"] >= 0.95
