"""Is any name one literal in code, and part of one line for readers?"""

from __future__ import annotations

import ast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autopart.base.quoting import one_line, quoted

ANY = st.text(st.characters())
"""Every character: controls, lone surrogates, line separators, text that reads right to left."""

NASTY = '"); import os #\n\\\x00\x1b[2J\u2028\u202e\ud800\xad'


@settings(deadline=None)
@given(ANY)
@example(NASTY)
@example("\\n")
def test_a_literal_evaluates_to_the_text_and_is_printable(text):
    literal = quoted(text)
    assert ast.literal_eval(literal) == text
    assert literal.isprintable()


@settings(deadline=None)
@given(ANY)
@example(NASTY)
def test_a_line_is_one_line_and_printable(text):
    line = one_line(text)
    assert line.isprintable()
    assert len(line.splitlines()) <= 1


@settings(deadline=None)
@given(ANY.filter(str.isprintable))
def test_what_is_printable_stays_as_it_is(text):
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("text", "line"), [("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\u202e", "\\u202e"), ("é\t", "é\\t")]
)
def test_controls_are_written_as_escapes(text, line):
    assert one_line(text) == line
