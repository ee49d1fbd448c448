"""What the command line says where the user's own code raised: the error, and the line of the user's that led to it.

    RuntimeError: boom
      at   train.py:15 in example, raise RuntimeError("boom")

Without such a line the mistake is autopart's, unless the error is of a kind that speaks for itself: then the whole
traceback is said, for a report.
"""

from __future__ import annotations

import traceback

from autopart.base.user_line import is_of_user

_READING_FAILED = (OSError, SyntaxError)
"""Errors that say by themselves which file is meant."""


def said_of(error: BaseException) -> str:
    """The error as text for stderr."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if is_of_user(frame.filename) and not frame.filename.startswith("<")
    ]
    if own:
        line = f", {own[-1].line}" if own[-1].line else ""
        return f"{_what(error)}\n  at   {own[-1].filename}:{own[-1].lineno} in {own[-1].name}{line}"
    speaks_for_itself = isinstance(error, _READING_FAILED) or type(error).__module__.startswith("jax")
    return _what(error) if speaks_for_itself else "".join(traceback.format_exception(error)).strip()


def _what(error: BaseException) -> str:
    """Type and message, without the notes that jax adds about tracebacks."""
    if isinstance(error, SystemExit):
        return f"the program ended Python, by sys.exit({error.code!r})"
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")
