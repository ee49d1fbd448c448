"""Figures for readers: seconds, bytes, and how both change.

>>> seconds_text(2.0441), seconds_text(0.0534), bytes_text(21.2e9), change_text(2.0, 1.5, seconds_text)
('2.04 s', '53.4 ms', '21.2 GB', '2 s -> 1.5 s (-25 %)')
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

WIDTH = 118
"""Columns of a line of text that is wrapped."""


def seconds_text(seconds: float) -> str:
    """Seconds for readers: 2.04 s, 53.4 ms, 7.1 us, 40 ns."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"


def bytes_text(in_bytes: float) -> str:
    """Bytes for readers, in powers of 1,000: 2.4 TB, 21.2 GB, 4.3 MB, 12 B."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(in_bytes) >= size:
            return f"{in_bytes / size:.3g} {unit}"
    return f"{in_bytes:.0f} B"


def change_text(before: float, after: float, text: Callable[[float], str]) -> str:
    """A figure before and after, and by how many percent it changed."""
    if after == before:
        return f"{text(before)} (no change)"
    share = f" ({100 * (after - before) / before:+.3g} %)" if before else ""
    return f"{text(before)} -> {text(after)}{share}"


def columns(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows of cells as lines: the first `left` columns flush left, the others right.

    >>> columns([["a", "1"], ["bc", "23"]])
    ['a    1', 'bc  23']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]


def wrapped(text: str) -> list[str]:
    """A text as lines of at most `WIDTH` columns, further ones indented by four more; long words stay whole."""
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(
        text.strip(), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
