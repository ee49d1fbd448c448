"""Rows of unequal length in one array: row i is entries pointer[i] to pointer[i + 1], as an op's operands are."""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel


def entries_of(pointer: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """int64: where the entries of some rows are, one row after another.

    >>> entries_of(np.array([0, 2, 2, 5]), np.array([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    pointer, rows = pointer.astype(np.int32, copy=False), rows.astype(np.int32, copy=False)
    entries = np.empty(int((pointer[rows + 1] - pointer[rows]).sum(dtype=np.int64)), np.int64)
    _fill_entries_of(pointer, rows, entries)
    return entries


def pointers(lengths: np.ndarray) -> np.ndarray:
    """int32: where the entries of each row begin, and where the last ones end."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def rows_of(pointer: np.ndarray) -> np.ndarray:
    """int32: the row of each entry.

    >>> rows_of(np.array([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    """
    rows = np.empty(int(pointer[-1]), np.int32)
    _fill_rows(pointer.astype(np.int32, copy=False), rows)
    return rows


def entries_by_number(numbers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """int32 (pointer, entries): where each number below `count` stands in an array, in order.

    >>> [each.tolist() for each in entries_by_number(np.array([2, 0, 2]), 3)]
    [[0, 1, 1, 3], [1, 0, 2]]
    """
    pointer = pointers(np.bincount(numbers, minlength=count))
    entries = np.empty(len(numbers), np.int32)
    _fill_entries(numbers.astype(np.int32, copy=False), pointer[:-1].copy(), entries)
    return pointer, entries


@kernel
def _fill_entries_of(pointer: np.ndarray, rows: np.ndarray, entries: np.ndarray) -> None:
    at = 0
    for i in range(rows.shape[0]):
        for entry in range(pointer[rows[i]], pointer[rows[i] + 1]):
            entries[at] = entry
            at += 1


@kernel
def _fill_rows(pointer: np.ndarray, rows: np.ndarray) -> None:
    for row in range(pointer.shape[0] - 1):
        for entry in range(pointer[row], pointer[row + 1]):
            rows[entry] = row


@kernel
def _fill_entries(numbers: np.ndarray, free: np.ndarray, entries: np.ndarray) -> None:
    """Fills in `entries`; free[number] is the first place that has none yet."""
    for entry in range(numbers.shape[0]):
        entries[free[numbers[entry]]] = entry
        free[numbers[entry]] += 1
