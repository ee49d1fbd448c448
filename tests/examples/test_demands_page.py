"""Does every answer of the page of demands name a test that is there?"""

from __future__ import annotations

import ast
import re

import pytest

from tests.examples.pages import ROOT

PAGE = (ROOT / "docs/demands.md").read_text()
RAW = re.findall(r"^\| (?!demand).*\|$", PAGE, re.MULTILINE)
ROWS = [[cell.strip() for cell in row[1:-1].split("|")] for row in RAW]
SHOWN = sorted({shown for row in ROWS for shown in re.findall(r"`([^`]+)`", row[2])})


def functions(path: str) -> set[str]:
    """The names of the functions of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_demand_has_an_answer_and_each_that_is_met_a_test():
    for demand, answer, shown in ROWS:
        assert re.match(r"\[(yes|partly|no)\b", answer), demand
        assert bool(shown) != answer.startswith("[no]"), demand


@pytest.mark.parametrize("shown", SHOWN)
def test_what_shows_an_answer_is_there(shown: str):
    path, _, name = shown.partition("::")
    assert (ROOT / path).exists(), path
    if name:
        assert name in functions(path)
