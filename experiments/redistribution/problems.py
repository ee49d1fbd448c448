"""Random redistribution problems, drawn as in section 8 of the paper.

Rank uniform in 2..6; global bytes (float32) log-uniform, split over the dims by uniform weights, each dim a multiple of
`multiple`; each mesh axis is replicated or on one of the dims, uniformly; axes of one dim in random order; source and
target differ, and every dim is divisible by what cuts it. A seed fixes all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autopart.spmd.redistribution import DistributedType

ELEMENT_BYTES = 4


@dataclass(frozen=True)
class ProblemSet:
    """A family of problems: `count` problems on `mesh`, of `min_bytes` to `max_bytes` float32."""

    name: str
    mesh: tuple[tuple[str, int], ...]
    count: int
    seed: int
    multiple: int
    min_bytes: float
    max_bytes: float
    ranks: tuple[int, int] = (2, 6)


@dataclass(frozen=True)
class Problem:
    """Global shape, and per dim the mesh axes that cut it, major first."""

    mesh: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    source: tuple[tuple[str, ...], ...]
    target: tuple[tuple[str, ...], ...]

    @property
    def types(self) -> tuple[DistributedType, DistributedType]:
        """Source and target."""
        sizes = dict(self.mesh)
        return DistributedType.of(self.shape, self.source, sizes), DistributedType.of(self.shape, self.target, sizes)

    @property
    def largest(self) -> int:
        """Elements per device of the larger of source and target."""
        return max(kind.local_elements for kind in self.types)

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * ELEMENT_BYTES


PAPER = ProblemSet("2x2x2", (("x", 2), ("y", 2), ("z", 2)), 1000, 0, 8, 64e6, 800e6)
UNEVEN = ProblemSet("4x6", (("x", 4), ("y", 6)), 300, 0, 12, 1e6, 64e6)
TIMED = ProblemSet("timed", (("x", 2), ("y", 2), ("z", 2)), 60, 1, 8, 16e6, 64e6)


def draw(family: ProblemSet) -> list[Problem]:
    """The problems of a family."""
    random = np.random.default_rng(family.seed)
    sizes = dict(family.mesh)
    found: list[Problem] = []
    while len(found) < family.count:
        rank = int(random.integers(family.ranks[0], family.ranks[1] + 1))
        shape = _shape(random, family, rank)
        source, target = (_layout(random, sizes, rank) for _ in range(2))
        if source != target and shape and _divides(sizes, shape, source) and _divides(sizes, shape, target):
            found.append(Problem(family.mesh, shape, source, target))
    return found


def _shape(random: np.random.Generator, family: ProblemSet, rank: int) -> tuple[int, ...]:
    wanted = np.exp(random.uniform(math.log(family.min_bytes), math.log(family.max_bytes))) / ELEMENT_BYTES
    above = math.log(wanted) - rank * math.log(family.multiple)
    if above < 0:
        return ()
    weights = random.dirichlet(np.ones(rank))
    shape = tuple(int(family.multiple * max(1, round(math.exp(above * w)))) for w in weights)
    inside = family.min_bytes <= math.prod(shape) * ELEMENT_BYTES <= family.max_bytes
    return shape if inside else ()


def _layout(random: np.random.Generator, sizes: Mapping[str, int], rank: int) -> tuple[tuple[str, ...], ...]:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in random.permutation(list(sizes)):
        dim = int(random.integers(-1, rank))
        if dim >= 0:
            dims[dim].append(str(name))
    return tuple(map(tuple, dims))


def _divides(sizes: Mapping[str, int], shape: tuple[int, ...], layout: tuple[tuple[str, ...], ...]) -> bool:
    return all(n % math.prod(sizes[a] for a in dim) == 0 for n, dim in zip(shape, layout, strict=True))
