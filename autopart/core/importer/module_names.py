"""Names in a module, as their author wrote them.

loc("x")                     x
loc("d\\22")                  d"    MLIR prints quotes, control characters and all beyond ASCII in hex
loc("x"("f.py":1:2))         no name: a place in a source file
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from autopart.base.errors import ProgramError
from autopart.core.doors.jax_internals import ir

_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)+)"\)')
_SHORT = {b"n": b"\n", b"t": b"\t", b"\\": b"\\", b'"': b'"'}


def unescaped(text: bytes) -> bytes:
    """The bytes that a string of MLIR's text stands for."""
    return _ESCAPE.sub(lambda m: _SHORT.get(m[1]) or (bytes.fromhex(m[1].decode()) if len(m[1]) == 2 else m[1]), text)


def quoted_text(attribute: ir.Attribute) -> str:
    """The content of a string or symbol attribute; of any other attribute its text, without its type."""
    if isinstance(attribute, ir.StringAttr):
        return attribute.value_bytes.decode("utf-8", "backslashreplace")
    text = str(attribute)
    if text.startswith('@"'):
        return unescaped(text[2:-1].encode()).decode("utf-8", "backslashreplace")
    return text.removeprefix("@").split(" : ")[0]


def argument_location_names(block: ir.Block) -> list[str]:
    """A name per argument: its `loc`, else arg0, arg1, ...; a name that is taken gets the argument's number."""
    names: list[str] = []
    taken: set[str] = set()
    for index, argument in enumerate(block.arguments):
        found = _NAME.fullmatch(str(argument.location))
        name = unescaped(found[1].encode()).decode("utf-8", "backslashreplace") if found else f"arg{index}"
        while name in taken:
            name = f"{name}_{index}"
        taken.add(name)
        names.append(name)
    return names


def checked_names(names: Sequence[object], count: int) -> list[str]:
    """The names as a list; raises `ProgramError` unless they are `count` non-empty strings, no two alike."""
    found = [name for name in names if isinstance(name, str) and name]
    if isinstance(names, str) or len(found) != len(names):
        raise ProgramError(f"argument_names are {names!r:.200}", why="they are a sequence of non-empty strings")
    if len(names) != count:
        raise ProgramError(f"{len(names)} argument names for a program of {count} arguments")
    twice = next((name for name, number in Counter(found).items() if number > 1), None)
    if twice is not None:
        raise ProgramError(
            f"two arguments are called {twice!r}",
            why="a tactic names an argument by its name",
            hint="a name of its own for each: the keys of a pytree, or argument_names",
        )
    return found
