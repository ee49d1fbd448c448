"""Axes cut into parts of prime size: principle 1 of the paper.

    {x:4, y:6}  ->  {x1:2, x2:2, y1:3, y2:2}     so that half of x, or a third of y, can move on its own

The parts are numbered, and during planning a type is a `PrimeLayout` of numbers, per dim major to minor, so that what a
collective adds or takes away is at the end:

    [3{x}12, 2{y}12]  ->  ((x2, x1), (y2, y1))  =  ((0, 1), (2, 3))

An axis of size 6 can be cut as 2 * 3 or as 3 * 2. Both describe the same redistributions, but name other ones on the
way, so `decompositions` offers all ways (up to a limit) and the planner keeps the best.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

from autopart.spmd.redistribution.types import DistributedType, DistributedTypeError, SubAxis, merged

PrimeLayout = tuple[tuple[int, ...], ...]
"""Per dim the numbers of the prime axes that cut it, major to minor."""

MAX_DECOMPOSITIONS = 6


@cache
def prime_factors(n: int) -> tuple[int, ...]:
    """Prime factors of n, ascending, with multiplicity.

    >>> prime_factors(12)
    (2, 2, 3)
    """
    factors, p = [], 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return (*factors, n) if n > 1 else tuple(factors)


def orders_of(factors: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The different orders of `factors`, the largest number first; twelve equal factors have one order, not 12!.

    >>> list(orders_of((2, 2, 3)))
    [(3, 2, 2), (2, 3, 2), (2, 2, 3)]
    """
    if not factors:
        yield ()
    for first in sorted(set(factors), reverse=True):
        rest = list(factors)
        rest.remove(first)
        yield from ((first, *order) for order in orders_of(tuple(rest)))


class PrimeAxes:
    """One way to cut the axes of a mesh into primes.

    axes    the prime parts, major mesh axis first, major part first
    sizes   their sizes
    primes  the distinct sizes
    """

    __slots__ = ("axes", "mesh", "number", "primes", "sizes", "which")

    def __init__(self, mesh: tuple[tuple[str, int], ...], axes: tuple[SubAxis, ...]):
        self.mesh, self.axes = mesh, axes
        self.sizes = tuple(a.size for a in axes)
        self.primes = tuple(sorted(set(self.sizes)))
        self.which = tuple(self.primes.index(s) for s in self.sizes)
        self.number = {(a.name, a.stride): i for i, a in enumerate(axes)}

    def parts(self, axis: SubAxis) -> tuple[int, ...]:
        """Numbers of the prime parts of `axis`, major to minor."""
        found, stride = [], axis.stride
        while stride < axis.stride * axis.size:
            part = self.number[axis.name, stride]
            found.append(part)
            stride *= self.sizes[part]
        return tuple(reversed(found))

    def layout(self, type_: DistributedType) -> PrimeLayout:
        """The type as a layout."""
        return tuple(tuple(p for axis in reversed(dim) for p in self.parts(axis)) for dim in type_.axes)

    def minor_first(self, parts: tuple[int, ...]) -> tuple[SubAxis, ...]:
        """Parts given major to minor, as axes minor to major, neighbours joined."""
        return merged([self.axes[p] for p in reversed(parts)])


@cache
def decompositions(
    mesh: tuple[tuple[str, int], ...], cuts: tuple[tuple[str, tuple[int, ...]], ...] = ()
) -> tuple[PrimeAxes, ...]:
    """The ways to cut the axes of `mesh` into primes; `cuts` are strides at which an axis must be cut.

    Raises `DistributedTypeError` where the cuts of an axis do not divide one another.
    """
    wanted = dict(cuts)
    choices: list[list[tuple[SubAxis, ...]]] = []
    for name, size in mesh:
        marks = sorted({1, size, *wanted.get(name, ())})
        for lower, upper in itertools.pairwise(marks):
            if upper % lower:
                raise DistributedTypeError(
                    f'axis "{name}" is cut at {lower} and at {upper}', why=f"{upper} is not a multiple of {lower}"
                )
            orders = itertools.islice(orders_of(prime_factors(upper // lower)), MAX_DECOMPOSITIONS)
            choices.append([_parts(name, lower, order) for order in orders])
    order = {name: i for i, (name, _) in enumerate(mesh)}
    made = []
    for choice in itertools.islice(itertools.product(*choices), MAX_DECOMPOSITIONS):
        parts = sorted((a for part in choice for a in part), key=lambda a: (order[a.name], -a.stride))
        made.append(PrimeAxes(mesh, tuple(parts)))
    return tuple(made)


def whole_axes(mesh: tuple[tuple[str, int], ...], cuts: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> PrimeAxes:
    """The axes of `mesh`, cut at `cuts` and nowhere else: for planners that do not need parts of prime size."""
    wanted, parts = dict(cuts), []
    for name, size in mesh:
        marks = sorted({1, size, *wanted.get(name, ())})
        parts += [SubAxis(name, hi // lo, lo) for lo, hi in reversed(list(itertools.pairwise(marks)))]
    return PrimeAxes(mesh, tuple(parts))


def cuts_of(*types: DistributedType) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Strides at which the types cut axes into parts."""
    sizes = dict(types[0].mesh)
    cuts: dict[str, set[int]] = {}
    for axis in _axes(types):
        if axis.size != sizes[axis.name]:
            cuts.setdefault(axis.name, set()).update((axis.stride, axis.stride * axis.size))
    return tuple((name, tuple(sorted(marks))) for name, marks in sorted(cuts.items()))


def valuations(n: int, primes: tuple[int, ...]) -> list[int]:
    """How often each prime divides n; n = 0 is divisible without end."""
    counts = []
    for p in primes:
        count = 0
        while count < 64 and n % p == 0:
            n //= p
            count += 1
        counts.append(count)
    return counts


def ways(layout: PrimeLayout, sizes: tuple[int, ...]) -> int:
    """Into how many tiles the layout cuts the array."""
    return math.prod([sizes[a] for dim in layout for a in dim])


def _parts(name: str, stride: int, order: tuple[int, ...]) -> tuple[SubAxis, ...]:
    parts = []
    for size in order:
        parts.append(SubAxis(name, size, stride))
        stride *= size
    return tuple(parts)


def _axes(types: tuple[DistributedType, ...]) -> Iterator[SubAxis]:
    for type_ in types:
        for dim in type_.axes:
            yield from dim
        for axis, _ in type_.pending:
            yield axis
