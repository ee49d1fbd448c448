"""Does the page of results show what the experiments keep?"""

from __future__ import annotations

import re

from experiments import results


def without_versions(text: str) -> str:
    """The page without the paragraph that names this machine's versions."""
    return re.sub(r"Written by .*?\n\n", "", text, flags=re.DOTALL)


def test_the_page_is_what_its_command_writes():
    assert without_versions(results.PAGE.read_text()) == without_versions(results.page()), (
        "python -m experiments.results"
    )


def test_every_table_and_figure_of_the_papers_is_there_or_named_as_missing():
    text = results.PAGE.read_text()
    for name in ("Table 1", "Table 2", "Table 3", "Figure 6", "Figure 7", "Figure 8", "9 and 10", "Figure 11", "14"):
        assert name in text
