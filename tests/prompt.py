"""Which cases of a long test run by default: the others are marked slow, and run with the slow tests.

only("bd", "abcd")           b and d
every(3, range(60))          0, 3, 6, ...
in_turn("abc", [1, 2])       ("a", 1), ("b", 2), ("c", 1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case that runs with the slow tests: a value for each name."""
    return pytest.param(*values, marks=pytest.mark.slow)


def only(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """All cases, each of one value, of which those in `quick` run by default."""
    return [case if case in quick else slow(case) for case in cases]


def every(nth: int, cases: Iterable[Any]) -> list[Any]:
    """All cases, each of one value, of which every nth runs by default."""
    return [slow(case) if number % nth else case for number, case in enumerate(cases)]


def in_turn(ones: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """All pairs, of which each one runs by default with one of the others, which take turns."""
    all_others: Sequence[Any] = list(others)
    return [
        (one, other) if turn == number % len(all_others) else slow(one, other)
        for number, one in enumerate(ones)
        for turn, other in enumerate(all_others)
    ]
