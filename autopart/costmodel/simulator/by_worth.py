"""A queue from which the entry that is worth most comes first: a heap in an array of numbers."""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel


@kernel
def put_in_order(queue: np.ndarray, length: int, worth: np.ndarray) -> None:
    """Makes a heap of the first `length` entries of the queue; entry i is worth worth[i]."""
    for at in range(length // 2 - 1, -1, -1):
        _sink(queue, at, length, worth)


@kernel
def take_first(queue: np.ndarray, length: int, worth: np.ndarray) -> int:
    """Takes the entry that is worth most from a heap of `length` entries, the lowest of equals: one fewer is left."""
    first = queue[0]
    queue[0] = queue[length - 1]
    _sink(queue, 0, length - 1, worth)
    return first


@kernel
def _sink(queue: np.ndarray, at: int, length: int, worth: np.ndarray) -> None:
    """Lets the entry at a place of the heap sink to where none below it is worth more."""
    while True:
        most = at
        for below in range(2 * at + 1, min(2 * at + 3, length)):
            if _before(queue[below], queue[most], worth):
                most = below
        if most == at:
            return
        queue[at], queue[most] = queue[most], queue[at]
        at = most


@kernel
def _before(entry: int, other: int, worth: np.ndarray) -> bool:
    """True if an entry comes before another."""
    return worth[entry] > worth[other] or (worth[entry] == worth[other] and entry < other)
