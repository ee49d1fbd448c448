"""Does the documentation build as a site, with every page in its navigation and every public name in its reference?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import autopart as ap
from tests.examples.pages import PAGES, ROOT, name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; it is built strictly, so a link that leads nowhere ends the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "docs/site/pages.py"), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "site"


@pytest.mark.slow
def test_every_public_name_has_a_heading_once(site: Path):
    pages = [page.read_text() for page in (site / "docs/api").glob("*.html")]
    for public in ap.__all__:
        module = "autopart.core.ops.traits" if public == "op_traits" else f"autopart.{public}"
        headings = sum(len(re.findall(rf'<h2 id="(?:{re.escape(module)}|autopart.{public})"', page)) for page in pages)
        assert headings == 1, public


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site: Path):
    menu = (site / "index.html").read_text().partition("<article")[0]
    for page in PAGES:
        built = name(page).removesuffix(".md").replace("README", "index") + ".html"
        assert f'href="{built}"' in menu or built == "index.html", built


@pytest.mark.slow
def test_columns_of_a_docstring_are_a_table_and_its_sessions_code(site: Path):
    page = (site / "docs/api/partitioning.html").read_text()
    assert re.search(r"<td><code>max_ops</code></td>\s*<td>ops after inlining", page)
    assert "&gt;&gt;&gt; " in page
