"""Names and places in code and in lines for readers: the only functions that write them there.

    quoted('say "hi"\\n')       a Python literal         "say \\"hi\\"\\n"
    one_line('a\\nwhy  b')      a part of one line       a\\nwhy  b          the newline written as two characters
    short_place('src/t.py:4 jit(f)/dot')                  t.py:4 dot       the file without its folders

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


def short_place(where: str) -> str:
    """A source line with its scope, without the folders of the file and the function that was traced, on one line.

    >>> short_place("src/model/t32.py:118 jit(train_step)/jvp(bsd,df->bsf)/dot_general")
    't32.py:118 jvp(bsd,df->bsf)/dot_general'
    """
    place, _, scope = where.partition(" ")
    if ".py:" not in place:
        place, scope = "", where
    outer, slash, inner = scope.partition("/")
    scope = inner if slash and outer.startswith("jit(") else scope
    return one_line(f"{place.rpartition('/')[2]} {scope}".strip())


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
