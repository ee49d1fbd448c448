"""Docstrings as Markdown: an extension of Griffe, which reads them for the site.

axes        mesh axes it may use      a table, a row per name; the code's docstrings
            one name or several       keep their columns
>>> Mesh({"batch": 4}).size           a block of Python
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import griffe

ROW = re.compile(r"^(\S(?:\S| (?! ))*) {2,}(\S.*)$")


def kind(line: str, before: str) -> str:
    """What a line is part of: "row", "code" or "text". A line that is indented goes on with a row before it."""
    if line.startswith(">>> ") or (before == "code" and line.strip()):
        return "code"
    if ROW.match(line) or (before == "row" and line.startswith("  ")):
        return "row"
    return "text"


def table(lines: list[str]) -> list[str]:
    """The rows of a table; what is indented belongs to the row above it."""
    rows: list[list[str]] = []
    for line in lines:
        found = ROW.match(line)
        if found:
            rows.append([found[1], found[2]])
        else:
            rows[-1][1] += " " + line.strip()
    cells = [f"| `{name}` | {text} |" for name, text in ([a, b.replace("|", "\\|")] for a, b in rows)]
    return ["", "| | |", "|---|---|", *cells, ""]


def markdown(docstring: str) -> str:
    """The docstring with its columns as tables and its sessions as code."""
    kinds: list[str] = []
    lines = docstring.splitlines()
    for line in lines:
        kinds.append(kind(line, kinds[-1] if kinds else "text"))
    out: list[str] = []
    for what, group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        block = [line for _, line in group]
        if what == "row":
            out += table(block)
        elif what == "code":
            out += ["", "```pycon", *block, "```", ""]
        else:
            out += block
    return "\n".join(out)


class Columns(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by Griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
