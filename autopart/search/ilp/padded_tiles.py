"""How much more memory than its elements an array takes for layout tiles, where one of several arrays is in memory.

    reads f32[128,16,16,320] as (1, 4) on {a: 16, b: 2}    a device has [8,16,16,160]: two tiles of 128, 1.6 times
    made of f32[128,16,16,16,20] by a reshape              or [8,16,16,8,20]: a tile of 128 for 20, 6.4 times: 1.6

The array that is read is known up to the path on which it is made (`certain_traffic.py`): whatever is on the path has
as many elements. Arrays of the shape that is read are cut like it. Of one of another shape only the dims before and
behind the reshape are; of those between, any cut may be.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from autopart.costmodel.simulator.arrays import F32_BYTES
from autopart.costmodel.simulator.sizes import padded_elements
from autopart.search.ilp.labels import Label, local_dims, stretches_of

Shape = tuple[int, ...]

UNKNOWN: frozenset[Shape] = frozenset({()})
"""Arrays of which nothing is known but their elements."""


@lru_cache(maxsize=1 << 16)
def padded_share(
    shape: Shape, label: Label, others: frozenset[Shape], sizes: tuple[int, ...], layout_tile: tuple[int, int]
) -> float:
    """Elements that any of these arrays takes at least, over its elements: one of `shape` that is cut as the label
    says, and those of other shapes of which it is made, or that are made of it. They are counted as of f32: rows of
    narrower elements are filled up to more."""
    rows, minor = layout_tile
    if minor == 1 or not shape or 0 in shape or stretches_of(label):
        return 1.0
    local = local_dims(shape, label, sizes)
    whole = float(padded_elements(np.array(local), len(local), F32_BYTES, rows, minor))
    return min(
        [whole / math.prod(local), *(_reshaped(shape, local, other, sizes, minor) for other in others - {shape})]
    )


def _reshaped(shape: Shape, local: list[float], other: Shape, sizes: tuple[int, ...], minor: int) -> float:
    """The same of an array of another shape: filled up along whatever dim wastes least."""
    alike = [a == b for a, b in zip(shape, other, strict=False)]
    before = next((d for d, same in enumerate(alike) if not same), len(alike))
    alike = [a == b for a, b in zip(reversed(shape[before:]), reversed(other[before:]), strict=False)]
    behind = next((d for d, same in enumerate(alike) if not same), len(alike))
    cut = [n / parts for n in other[before : len(other) - behind] for parts in _ways(sizes) if n % parts == 0]
    along = [*local[:before], *local[len(local) - behind :], *cut]
    return min((math.ceil(n / minor) * minor / n for n in along), default=1.0)


@lru_cache(maxsize=64)
def _ways(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Into how many parts some of the axes cut a dim."""
    chosen = itertools.product((False, True), repeat=len(sizes))
    return tuple({math.prod(size for size, cuts in zip(sizes, each, strict=True) if cuts) for each in chosen})
