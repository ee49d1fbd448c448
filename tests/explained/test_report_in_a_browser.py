"""Does a browser show the report: its script runs, its tables can be paged, and nothing is wider than a phone?

Needs Chromium or Chrome on the path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autopart.api.report.page import Sheet, report_page
from tests.explained.test_report_page import large, searched

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no browser")]

PROBE = """<script>
addEventListener("load", () => {
  const page = document.documentElement;
  document.body.dataset.found = [innerWidth, page.scrollWidth, performance.now().toFixed(0)].join(" ");
});
</script></body>"""


def shown(page: Path, width: int, folder: Path) -> str:
    """The document as the browser has it once it is loaded."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", f"--window-size={width},900"]
    command = [str(BROWSER), *flags, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def found_in(dom: str) -> list[int]:
    """Width of the window, width of the content, milliseconds until the page was there."""
    return list(map(int, re.findall(r'data-found="(\d+) (\d+) (\d+)"', dom)[0]))


@pytest.mark.parametrize("width", [500, 1280])
def test_it_is_drawn_within_the_window_and_its_tables_are_filled(width, tmp_path):
    page = tmp_path / "report.html"
    searched().report(page)
    page.write_text(page.read_text().replace("</body>", PROBE))
    dom = shown(page, width, tmp_path / "profile")
    window, content, _ = found_in(dom)
    assert content <= window
    assert re.search(r"1 to \d+ of \d+", dom)
    assert dom.count("<button") >= 4


def test_a_page_of_twenty_thousand_ops_is_there_in_two_seconds(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(report_page(Sheet(large().metadata, large().scheduled)).replace("</body>", PROBE))
    times = [found_in(shown(page, 1280, tmp_path / f"profile{n}"))[2] for n in range(3)]
    assert min(times) < 2000
