"""Does every link between pages lead somewhere, and does the index list every page?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.pages import PAGES, ROOT, name, prose

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
READMES = [
    p for p in (ROOT / "experiments").rglob("README.md") if not any(part.startswith(".venv") for part in p.parts)
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The relative links of a page whose file or heading is not there."""
    found = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if link.startswith(("https://", "mailto:")):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=name)
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page: Path):
    assert broken(page) == []


def test_a_link_to_nothing_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# One: two\n[a](#one-two) [b](page.md#one) [c](none.md) [d](https://example.org/none)\n")
    assert broken(page) == ["page.md#one", "none.md"]


def test_the_index_lists_every_page_of_the_docs():
    listed = set(LINK.findall((ROOT / "docs/README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed
