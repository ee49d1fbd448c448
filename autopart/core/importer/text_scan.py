"""What text tells before MLIR parses it: whether the parser's stack is deep enough, and whether a child must go first.

MLIR's parser is recursive and its Python binding ends the process where a string is not UTF-8. Flipped bits and cut
ends in text led to no other end than an error message, so text is parsed in this process unless

    ((((...  {{{{...             brackets nest deeper than a program of `max_depth` regions does    refused
    #a1 = [#a0, #a0] ...         aliases that stand for far more than they are long                 refused
    "\\FF"                       a string that is not UTF-8                                         child first

Bytecode always goes through a child first.
"""

from __future__ import annotations

import re

import numpy as np

from autopart.base.errors import ProgramError
from autopart.base.limits import Limits
from autopart.core.importer.module_names import unescaped

BYTECODE = b"ML\xefR"
BRACKETS_PER_REGION = 3
"""A region in MLIR's generic form opens a parenthesis and a brace; its op may stand in another pair."""

MOST_ALIASED = 10_000_000
"""Characters that one alias may stand for; a source location of jax's stands for a few thousand."""

_STRING_OR_COMMENT = re.compile(rb'("builtin\.module"\s*\(\s*\))|"(?:[^"\\\n]|\\.)*"|//[^\n]*')
_ARROWS = re.compile(rb"->|>=|<=")
_ALIAS = re.compile(rb"([#!][A-Za-z_][\w.$-]*)(?:\s*(=)(?![=>]))?")
_BODY = re.compile(rb"\bmodule\s*(?:@[\w.$-]+\s*)?(?:attributes\s*)?\{|\bfunc\.func\s[\w\s]*@")
"""Where a list of aliases ends; neither can stand in an attribute."""


def check_text(data: bytes, limits: Limits) -> None:
    """Raises `ProgramError` for brackets or aliases nested deeper than a program within `limits` can have them."""
    bare = _STRING_OR_COMMENT.sub(_left_of, data)
    _check_nesting(bare, limits)
    _check_aliases(bare, limits)


def needs_child(data: bytes) -> bool:
    """Whether the data must be tried in a child process before this one touches it."""
    return data.startswith(BYTECODE) or not _is_utf8(data)


def _left_of(string: re.Match[bytes]) -> bytes:
    return b" module {" if string[1] else b" "


def _check_nesting(bare: bytes, limits: Limits) -> None:
    characters = np.frombuffer(_ARROWS.sub(b"", bare), np.uint8)
    allowed = BRACKETS_PER_REGION * limits.max_depth + 20
    for opening, closing in (b"()", b"[]", b"{}", b"<>"):
        at = np.flatnonzero((characters == opening) | (characters == closing))
        depth = np.cumsum(np.where(characters[at] == opening, 1, -1))
        below = np.minimum(np.minimum.accumulate(depth), 0) if len(depth) else depth
        deepest = int(np.max(depth - below, initial=0))
        if deepest > allowed:
            raise ProgramError(
                f"the module nests {chr(opening)}{chr(closing)} {deepest} deep",
                why=f"{allowed} is the limit for max_depth={limits.max_depth}",
                hint="ap.Limits(max_depth=...)",
            )


def _check_aliases(bare: bytes, limits: Limits) -> None:
    length: dict[bytes, int] = {}
    depth: dict[bytes, int] = {}
    name, ends = b"", -1
    for found in _ALIAS.finditer(bare):
        if found[2]:
            name = found[1]
            length[name], depth[name] = 20, 1
            if ends < found.end():
                body = _BODY.search(bare, found.end())
                ends = body.start() if body else len(bare)
        elif name and found.start() < ends and found[1] in length:
            length[name] += length[found[1]]
            depth[name] = max(depth[name], depth[found[1]] + 1)
            if length[name] > MOST_ALIASED or depth[name] > BRACKETS_PER_REGION * limits.max_depth + 20:
                raise ProgramError(
                    f"the module's alias {name.decode()} stands for too much",
                    why=f"{length[name]:,} characters, {depth[name]} levels of other aliases",
                )


def _is_utf8(data: bytes) -> bool:
    try:
        if not data.isascii():
            data.decode()
        if b"\\" in data:
            unescaped(data).decode()
    except UnicodeDecodeError:
        return False
    return True
