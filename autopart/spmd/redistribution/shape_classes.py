"""Shapes between which the planner tells no difference: those whose dims the parts of axes can cut alike.

    [48, 1024, 3, 32, 128] on {x:16, y:2}      cut in 16, 32, 1, 32 and 32 parts at most
    [16, 32, 32, 32]                           the smallest shape of this class, without the dim that nothing cuts

By Figure 11 every sequence costs so many parts of the array, whatever the array's size. So what is cheapest for the
smallest shape is so for the others, and a program of hundreds of types has few classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from autopart.spmd.redistribution.primes import PrimeLayout, prime_factors, valuations
from autopart.spmd.redistribution.types import DistributedType


@dataclass(frozen=True)
class Shrunk:
    """A source and a target of the smallest shape; make it with `shrunk`.

    kept     the dims that are left, of `rank`
    times    elements of the array over those of the smallest
    """

    source: DistributedType
    target: DistributedType
    kept: tuple[int, ...]
    rank: int
    times: int

    def restored(self, layout: PrimeLayout) -> PrimeLayout:
        """The layout with the dims that were left out, whole."""
        found: list[tuple[int, ...]] = [()] * self.rank
        for dim, parts in zip(self.kept, layout, strict=True):
            found[dim] = parts
        return tuple(found)


def shrunk(source: DistributedType, target: DistributedType) -> Shrunk:
    """Both types with the smallest shape that can be cut as theirs. Types that cannot be planned stay as they are."""
    shape = smallest_shape(source.shape, source.mesh)
    if source.shape != target.shape or source.mesh != target.mesh:
        return Shrunk(source, target, tuple(range(len(shape))), len(shape), 1)
    kept = tuple(dim for dim, size in enumerate(shape) if size != 1)
    small = [
        replace(type_, shape=tuple(shape[d] for d in kept), axes=tuple(type_.axes[d] for d in kept))
        for type_ in (source, target)
    ]
    elements = math.prod(shape)
    return Shrunk(small[0], small[1], kept, len(shape), math.prod(source.shape) // elements if elements else 1)


@lru_cache(maxsize=1 << 12)
def smallest_shape(shape: tuple[int, ...], mesh: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """Of each dim the largest divisor that parts of the mesh's axes may cut; 0 stays 0."""
    parts = [prime for _, size in mesh for prime in prime_factors(size)]
    primes = tuple(sorted(set(parts)))
    most = [parts.count(prime) for prime in primes]
    return tuple(
        n and math.prod(p ** min(own, m) for p, own, m in zip(primes, valuations(n, primes), most, strict=True))
        for n in shape
    )
