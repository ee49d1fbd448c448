"""Names in code and in lines for readers: the only two functions that write them there.

    quoted('say "hi"\\n')       a Python literal         "say \\"hi\\"\\n"
    one_line('a\\nwhy  b')      a part of one line       a\\nwhy  b          the newline written as two characters

A name may come from a file, and so may be anything: quotes, newlines, terminal controls, text that reads right to left.
"""

from __future__ import annotations


def quoted(text: str) -> str:
    r"""A Python string literal in double quotes that evaluates to `text`; only printable characters.

    >>> print(quoted('a"b\\c\n'))
    "a\"b\\c\n"
    """
    return '"' + "".join("\\" + c if c in '"\\' else _shown(c) for c in text) + '"'


def one_line(text: str) -> str:
    r"""The text with newlines, controls and whatever else is not printable as escapes.

    >>> print(one_line("a\nb"))
    a\nb
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
