"""Does the page about redistribution run, and print what it says?"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "redistribution.md"


def test_the_example_prints_what_the_page_shows(capsys):
    shown = r"^```python\n(.*?)^```\n\n```\n(.*?)^```$"
    ((code, output),) = re.findall(shown, PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == output
