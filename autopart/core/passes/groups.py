"""A long dim in groups: how many, so that devices can share them.

    32,000 tokens  ->  128 groups of 250        logits tiled 2, 4, ..., 128 ways hold whole groups

A pass that works group by group, and then on what is left of each group, leaves devices little to exchange.
"""

from __future__ import annotations

import math

from autopart.core.op import TensorType

LEAST = 1024
"""The shortest dim that is worth it, whatever else the array has."""

LEAST_BYTES = 1 << 24
"""Of an array of so many bytes shorter dims are worth it too: each device would be given all of them."""

SHORTEST = 16
"""The shortest of all."""

MOST = 128
"""The most groups that are made: as many devices may share a dim."""


def is_long(type_: TensorType, dim: int, least: int = LEAST) -> bool:
    """Whether work along a dim is worth doing in groups."""
    size = type_.shape[dim]
    return size >= least or (size >= SHORTEST and type_.bytes >= LEAST_BYTES)


def groups_of(size: int, most: int = MOST) -> int:
    """Of the divisors up to `most`, the one that most powers of two divide, then the largest."""
    return max((d for d in range(1, max(1, most) + 1) if size % d == 0), key=lambda d: (math.gcd(d, MOST), d))
