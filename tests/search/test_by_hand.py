"""Is what a search finds never slower than what people write, and do both pages show it?"""

from __future__ import annotations

import json

import pytest

from experiments.by_hand.__main__ import PAGES, RESULTS, table
from tests.own_process import said_by

CASES = "import json; from experiments.by_hand.cases import cases; from experiments.by_hand.__main__ import row; "
KEPT = json.loads(RESULTS.read_text())["rows"]


def test_no_kept_find_is_slower_than_by_hand_and_all_fit():
    assert [r["name"] for r in KEPT] == said_by(CASES + "print(json.dumps([case.name for case in cases()]))")
    assert [r["name"] for r in KEPT if r["found"]["step_s"] > r["by_hand"]["step_s"] or not r["found"]["fits"]] == []


def test_both_pages_show_what_is_kept():
    assert all(table(KEPT) in page.read_text() for page in PAGES)


@pytest.mark.slow
def test_a_search_of_a_decoder_is_no_slower_than_by_hand_today():
    one = "next(case for case in cases() if case.name.startswith('Llama-2-7B'))"
    found = said_by(CASES + f"print(json.dumps(row({one})))")
    assert found["found"]["step_s"] <= found["by_hand"]["step_s"]
