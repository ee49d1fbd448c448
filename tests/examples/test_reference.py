"""Are the written pages what their scripts write, and do pages name files and names that exist?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autopart as ap
from tests.examples.pages import PAGES, ROOT, name

WRITTEN = ("errors.md", "ops.md")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": ""}
    subprocess.run([sys.executable, str(ROOT / "docs/reference.py"), str(folder)], check=True, env=environment)
    return folder


@pytest.mark.parametrize("page", WRITTEN)
def test_a_written_page_is_up_to_date(page: str, written: Path):
    assert (ROOT / "docs" / page).read_text() == (written / page).read_text(), "run `make docs`"


def test_every_public_error_has_an_example():
    """Sections of errors.md without one end after the docstring."""
    sections = (ROOT / "docs/errors.md").read_text().split("\n## ")[1:]
    bare = [s.partition("\n")[0].strip("`") for s in sections if "```" not in s]
    assert [title for title in bare if title.startswith("ap.")] == []
    assert {t.partition("\n")[0].strip("`") for t in sections} >= {
        f"ap.{n}" for n in ap.__all__ if n.endswith("Error") and n != "PartitionError"
    }


def named_paths(text: str) -> set[str]:
    """What stands in backticks and looks like a file or a folder of the repository."""
    words = re.findall(r"`([A-Za-z_.][\w./-]*)`", text)
    return {w for w in words if "/" in w and (w.endswith("/") or re.search(r"\.(py|md|toml|yml|json)$", w))}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_exist(page: Path):
    paths = named_paths(page.read_text())
    assert [p for p in sorted(paths) if not ((ROOT / p).exists() or (ROOT / "autopart" / p).exists())] == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=name)
def test_names_of_the_public_api_that_a_page_uses_exist(page: Path):
    used = re.findall(r"\bap((?:\.[A-Za-z_]\w*)+)", page.read_text())
    assert [f"ap{path}" for path in used if not resolves(path.strip(".").split("."))] == []


def resolves(names: list[str]) -> bool:
    """True if the attributes exist, one inside the other, as far as modules and classes go."""
    thing: object = ap
    for attribute in names:
        if not hasattr(thing, attribute):
            return False
        thing = getattr(thing, attribute)
    return True


def test_a_name_that_does_not_exist_is_found():
    assert resolves(["costmodel", "XlaCompile"])
    assert not resolves(["costmodel", "XlaCompiled"])
    assert named_paths("`core/no.py` `docs/` `x / y`") == {"core/no.py", "docs/"}
