"""What a plan decides, for readers: its actions by value, those of layers as one.

118 rows of actions    ->    params/blocks_*/attn/key/kernel  dim 0 on model, data      6 x
                             LM/blocks_*/attn/dot_general     dim 1 on model            6 x
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from autopart.base.quoting import one_line

SHOWN = 12
"""Lines that a plan's text spends on a tactic."""

_DIGITS = re.compile(r"\d+")


def decided_lines(rows: Sequence[Sequence[Any]]) -> list[str]:
    """A line for the values that differ in numbers alone and are decided about alike."""
    said: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        match row:
            case ["tile", key, int(dim), str(axis)]:
                said.setdefault(key, []).append(f"dim {dim} on {axis}")
            case ["atomic", key, str(axis)]:
                said.setdefault(key, []).append(f"whole on {axis}")
            case _:
                pass
    groups: dict[tuple[str, str], list[str]] = {}
    for key, decisions in said.items():
        groups.setdefault((_DIGITS.sub("*", _name(key)), ", ".join(decisions)), []).append(_name(key))
    lines = [
        f"{one_line(glob if len(names) > 1 else names[0])}: {one_line(text)}"
        + (f"  {len(names)} x" if len(names) > 1 else "")
        for (glob, text), names in groups.items()
    ]
    left = len(lines) - SHOWN
    return lines if left <= 0 else [*lines[:SHOWN], f"and {left} more"]


def _name(key: Sequence[Any]) -> str:
    """What a reader calls the value of a key: a path, a tag, or scope and op."""
    match key:
        case ["argument" | "output" | "tag", str(name), *_]:
            return name
        case ["op", str(scope), str(kind), *_]:
            return "/".join([*scope.split("/")[:-1], kind])
        case _:
            return repr(key)
