"""Are estimates close to the tokens per second that others have published of their training runs?"""

# isort: skip_file
# (the kernels of the runs are taken back from the registry where they are imported first)
from __future__ import annotations

import json

import pytest

from tests.whole_models.published_kernels import published_kernels  # noqa: F401
from experiments.published_runs.__main__ import HERE, RESULTS, said, summary, table
from experiments.published_runs.runs import runs

CHEAP = ("Llama-2-70B, 256 v5p", "Llama-2-7B, 8 H100")
LEAST, MOST = 0.8, 1.25


@pytest.mark.parametrize("name", CHEAP)
def test_a_published_run_is_estimated_within_a_quarter(name: str):
    assert LEAST <= runs()[name].row()["ratio"] <= MOST


@pytest.mark.slow
def test_every_tpu_run_is_within_a_quarter_and_the_order_is_that_of_the_runs():
    found = summary([run.row() for run in runs().values() if run.on_tpu])
    assert found["least"] >= LEAST, found
    assert found["most"] <= MOST, found
    assert found["mean_error"] <= 0.09, found
    assert found["spearman"] >= 0.98, found


def test_the_page_shows_what_is_kept():
    kept, page = json.loads(RESULTS.read_text()), (HERE / "README.md").read_text()
    assert table(kept["rows"]) in page
    assert said(kept["summary"]) in page
    assert [row["name"] for row in kept["rows"]] == list(runs())
