"""Do the examples of the README and the guide run, and print what the page says?"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language ("" for output)."""
    return [body for found, body in FENCE.findall((ROOT / page).read_text()) if found == language]


def run(page: str) -> str:
    """What the page's Python blocks print, run one after the other in one namespace."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n".join(blocks(page, "python")), "train.py", "exec"), {})
    return printed.getvalue()


def test_readme_example_prints_what_the_readme_shows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert run("README.md") == blocks("README.md", "")[0]


def test_getting_started_runs_and_its_figures_hold(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    printed = run("docs/getting-started.md")
    assert re.search(r"^BP +\d+ +20 ", printed, re.MULTILINE)
    assert re.search(r"^MP +\d+ +28 ", printed, re.MULTILINE)
    assert printed.endswith("(None, None, 'model')\n")


def test_schedules_print_what_the_page_shows():
    assert run("docs/schedules.md") == "".join(blocks("docs/schedules.md", ""))
