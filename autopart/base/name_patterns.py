"""The pattern language of names: tactics, explanations, policies of recomputation and loops use this one.

w[0]      a name that is there is always itself: what is in it is then no wildcard
*         any text, also of several parts of a path     blocks/*/w    blocks/3/mlp/w
?         any one character                             block?        block3
[01]      one of these characters; [!01] none of them   block[01]     block0
"""

from __future__ import annotations

import fnmatch
import functools
import re


def is_pattern(text: str) -> bool:
    """True if the text has a wildcard, so that it may name others than what is called so."""
    return any(c in text for c in "*?[")


def matches(name: str, pattern: str) -> bool:
    """True for the name itself, and where the pattern matches all of it.

    >>> [matches("w[0]", pattern) for pattern in ("w[0]", "w*", "w[[]0]", "w")]
    [True, True, True, False]
    """
    return name == pattern or compiled(pattern).match(name) is not None


@functools.lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as an expression that matches whole texts."""
    return re.compile(fnmatch.translate(pattern))
