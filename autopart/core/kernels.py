"""`kernel`: how the hot loops are compiled.

Kernels take named tuples of arrays and allocate nothing. Numba would still count references to each array of a tuple at
each call of one kernel from another; compiled without its memory runtime it does not, and propagation over a training
step takes 1.4 ms instead of 29 ms. A function that allocates an array cannot be a `kernel`: use
`numba.njit(cache=True)`.

Compiled kernels are cached on disk beside the source; the first time, a line on stderr says why it takes so long.
"""

from __future__ import annotations

import sys
from typing import Any

from numba import njit
from numba.core import event

kernel = njit(cache=True, _nrt=False)  # pyright: ignore
"""Decorator: compiled once, cached on disk, without reference counts."""


class _FirstTime(event.Listener):
    """Says once that kernels of this package are being compiled."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:
        """A kernel, perhaps somebody else's, is compiled."""
        dispatcher = event.data["dispatcher"]
        if not self._said and dispatcher.py_func.__module__.startswith("autopart."):
            self._said = True
            print("autopart compiles its kernels, once on this machine: up to a minute", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


event.register("numba:compile", _FirstTime())  # pyright: ignore
