"""Does a browser show the report: its script runs, its tables can be paged, and nothing is wider than a phone?

Needs Chromium or Chrome on the path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.explained.test_report_page import read, searched

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
    command = [str(BROWSER), *flags, "--virtual-time-budget=3000", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


@pytest.mark.parametrize("width", [500, 1280])
def test_it_is_drawn_within_the_window_and_its_tables_are_filled(width, tmp_path):
    page = tmp_path / "report.html"
    searched().report(page)
    page.write_text(page.read_text().replace("</body>", PROBE))
    dom = shown(page, width, tmp_path / "profile")
    window, content, opened_ms = map(int, re.findall(r'data-found="(\d+) (\d+) (\d+)"', dom)[0])
    assert content <= window
    assert opened_ms < 2000
    assert re.search(r"1 to \d+ of \d+", dom)
    assert read(dom).tags.count("button") >= 4
