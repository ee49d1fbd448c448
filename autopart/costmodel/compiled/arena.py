"""Where a run of the simulator has its arrays.

    NEW     memory of their own: a run can be looked at for as long as somebody holds it
    Kept    that of the run before: half the time of a run of a million ops is the system clearing new memory

glibc keeps what is freed only in blocks below 32 MiB.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Empty = Callable[..., np.ndarray]
"""`np.empty`, or what makes arrays as it does."""

LARGE_BYTES = 2**22
"""Smaller arrays are made anew, which takes less time than to look for their place."""


@dataclass(frozen=True)
class New:
    """Memory of their own for the arrays of each run."""

    def begun(self) -> Empty:
        """What makes the arrays of the next run."""
        return np.empty


@dataclass(eq=False)
class Kept:
    """The same memory for each run: the arrays of a run are good until the next one begins.

    _blocks   one for each large array of a run, in the order in which it makes them
    _taken    how many the run has so far
    """

    _blocks: list[np.ndarray] = field(default_factory=list[np.ndarray], repr=False)
    _taken: int = 0

    def begun(self) -> Empty:
        """What makes the arrays of the next run."""
        self._taken = 0
        return self._empty

    def _empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        in_bytes = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
        if in_bytes < LARGE_BYTES:
            return np.empty(shape, dtype)
        if self._taken == len(self._blocks):
            self._blocks.append(np.empty(0, np.uint8))
        if len(self._blocks[self._taken]) < in_bytes:
            self._blocks[self._taken] = np.empty(in_bytes + in_bytes // 8, np.uint8)
        self._taken += 1
        return self._blocks[self._taken - 1][:in_bytes].view(dtype).reshape(shape)


Room = New | Kept

NEW = New()
