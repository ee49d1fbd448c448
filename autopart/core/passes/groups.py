"""A long dim in groups: how many, so that devices can share them.

    32,000 tokens  ->  128 groups of 250        logits tiled 2, 4, ..., 128 ways hold whole groups

A pass that works group by group, and then on what is left of each group, leaves devices little to exchange.
"""

from __future__ import annotations

import math

LEAST = 1024
"""The shortest dim that is worth it."""

_MOST = 128


def groups_of(size: int) -> int:
    """Of the divisors up to 128, the one that most powers of two divide, then the largest; 1 where the dim is short."""
    if size < LEAST:
        return 1
    return max((d for d in range(1, _MOST + 1) if size % d == 0), key=lambda d: (math.gcd(d, _MOST), d))
