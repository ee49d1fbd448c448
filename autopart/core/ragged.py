"""Rows of unequal length in one array: row i is entries pointer[i] to pointer[i + 1], as an op's operands are."""

from __future__ import annotations

import numpy as np


def entries_of(pointer: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """int64: where the entries of some rows are, one row after another.

    >>> entries_of(np.array([0, 2, 2, 5]), np.array([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    start, lengths = pointer[rows].astype(np.int64), np.diff(pointer)[rows]
    before = np.cumsum(lengths) - lengths
    return np.repeat(start - before, lengths) + np.arange(int(lengths.sum()))
