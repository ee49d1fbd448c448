"""A queue from which the entry that is worth most comes first: a heap in an array of numbers.

What is taken leaves a hole, which goes down to a leaf along the better entries; the last entry then rises from there,
which is rarely far: one comparison a level, where letting the last entry sink takes two.
"""

from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel


@kernel
def put_in_order(queue: np.ndarray, length: int, worth: np.ndarray) -> None:
    """Makes a heap of the first `length` entries of the queue; entry i is worth worth[i]."""
    for at in range(length // 2 - 1, -1, -1):
        _sink(queue, at, length, worth)


@kernel
def take_first(queue: np.ndarray, length: int, worth: np.ndarray) -> int:
    """Takes the entry that is worth most from a heap of `length` entries, the lowest of equals: one fewer is left."""
    first, last, hole = queue[0], queue[length - 1], 0
    while 2 * hole + 1 < length - 1:
        below = 2 * hole + 1
        if below + 1 < length - 1 and _before(queue[below + 1], queue[below], worth):
            below += 1
        queue[hole], hole = queue[below], below
    while hole > 0 and _before(last, queue[(hole - 1) // 2], worth):
        queue[hole], hole = queue[(hole - 1) // 2], (hole - 1) // 2
    queue[hole] = last
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
