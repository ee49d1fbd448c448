"""`kernel`: how the hot loops are compiled.

Kernels take named tuples of arrays and allocate nothing. Numba would still count references to each array of a tuple at
each call of one kernel from another; compiled without its memory runtime it does not, and propagation over a training
step takes 1.4 ms instead of 29 ms. A function that allocates an array cannot be a `kernel`: use
`numba.njit(cache=True)`.
"""

from __future__ import annotations

from numba import njit

kernel = njit(cache=True, _nrt=False)
"""Decorator: compiled once, cached on disk, without reference counts."""
