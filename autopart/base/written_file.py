"""A file that a user asked for: written, or an error that says which one could not be.

write_text("no/such/folder/report.html", page, "the report")

ArgumentError: the report cannot be written to no/such/folder/report.html
  why  No such file or directory
"""

from __future__ import annotations

from pathlib import Path

from autopart.base.errors import ArgumentError


def write_text(path: str | Path, text: str, what: str) -> Path:
    """Writes text; returns where it is. Raises `ArgumentError` where that cannot be."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ArgumentError(f"{what} cannot be written to {path}", why=why, hint="a folder that is there") from None
    return Path(path).absolute()
