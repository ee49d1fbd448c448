"""Periods of a string of words: how far apart stretches of it that are alike stand.

    a b c d  a b c d  a b c d      stretches of 4 words come again after 4 and 8

Stretches of a few lengths are hashed; of each length the distances that most of its stretches have are tried.
"""

from __future__ import annotations

import numpy as np

LENGTHS = (4, 16, 64)
"""Lengths of stretches whose next occurrence may be a period away."""

PERIODS = 12
"""Periods for each of these lengths: those that most stretches have."""

_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))


def periods(words: np.ndarray, begins: np.ndarray | None = None) -> list[int]:
    """Distances of stretches of uint64[n] that are alike from each other, the shortest first.

    With `begins`, bool[n], of those that begin there.

    >>> periods(np.array([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], np.uint64))
    [5]
    """
    stretch, length, found = words, 1, set[int]()
    while length < max(LENGTHS) and len(stretch) > length:
        stretch = stretch[:-length] * _ODD[0] + (stretch[length:] ^ np.uint64(length)) * _ODD[1]
        stretch, length = stretch ^ (stretch >> np.uint64(29)), 2 * length
        if length in LENGTHS:
            at = np.arange(len(stretch)) if begins is None else np.flatnonzero(begins[: len(stretch)])
            order = at[np.argsort(stretch[at], kind="stable")]
            apart = np.diff(order)[stretch[order][1:] == stretch[order][:-1]]
            distance, count = np.unique(apart, return_counts=True)
            found |= set(distance[np.argsort(-count, kind="stable")[:PERIODS]].tolist())
    return sorted(found)
