"""Does every example of the documentation run, and print what the page shows?"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.pages import KINDS, PAGES, ROOT, Block, blocks, name, prose

READ_FIRST = {"README.md", "docs/getting-started.md"}
"""Pages whose examples run in the default tests. Those of the other pages run with the slow ones."""

WITH_PYTHON = [
    pytest.param(page, id=name(page), marks=[] if name(page) in READ_FIRST else [pytest.mark.slow])
    for page in PAGES
    if any(block.kind == "python" for block in blocks(page))
]


def run(texts: list[str], folder: Path) -> list[str]:
    """What each text printed, run by an interpreter that has seen nothing else, in an empty folder."""
    kept = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "AUTOPART_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-W", "error", "-m", "tests.examples.run_blocks", "printed.json"]
    ended = subprocess.run(command, cwd=folder, env=kept | own, input=json.dumps(texts), text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads((folder / "printed.json").read_text())


def compared(found: list[Block], printed: list[str]) -> list[tuple[str, str]]:
    """(what the page shows, what the block before it printed) for each block of output."""
    left, last, pairs = iter(printed), "", []
    for block in found:
        if block.kind == "python":
            last = next(left)
        elif block.kind == "":
            pairs.append((block.text, last))
    return pairs


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_examples_run_and_print_what_the_page_shows(page: Path, tmp_path: Path):
    found = blocks(page)
    printed = run([block.text for block in found if block.kind == "python"], tmp_path)
    for shown, actual in compared(found, printed):
        assert doctest.OutputChecker().check_output(shown, actual, doctest.ELLIPSIS), f"{shown}\n--- prints\n{actual}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_are_of_a_known_kind_and_those_that_do_not_run_say_why(page: Path):
    for block in blocks(page):
        assert block.kind in KINDS, block
        if block.kind == "python no-run":
            assert "not run by the tests" in block.before.replace("\n", " "), block


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_example_hides_in_an_indented_block(page: Path):
    assert re.findall(r"\n\n {4,}\S.*", prose(page)) == []


def test_a_page_that_shows_something_else_fails():
    found = [Block("python", "print(1)", ""), Block("", "2\n", "")]
    assert compared(found, ["1\n"]) == [("2\n", "1\n")]
