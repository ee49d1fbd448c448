"""Pages: what README, CONTRIBUTING, CHANGELOG and docs hold, as values.

```python           runs, after the page's earlier ones, in one namespace
```python no-run    does not; the paragraph before it says "not run by the tests" and why
```                 what the block of Python before it prints
```text, ```sh      for readers: a picture, a formula, commands
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
KINDS = ("python", "python no-run", "", "text", "sh")
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and the paragraph before it."""

    kind: str
    text: str
    before: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    found = FENCE.finditer(text)
    return [Block(m.group(1), m.group(2), text[: m.start()].rstrip("\n").rpartition("\n\n")[2]) for m in found]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def name(page: Path) -> str:
    """Its path from the repository's root."""
    return page.relative_to(ROOT).as_posix()
