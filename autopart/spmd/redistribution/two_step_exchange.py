"""Two all_to_alls that are exact: the first parks the axes that are in the way on dims that have room.

    dim 0  (a)              (b)                  a moves 0 -> 1, then b moves 2 -> 0
    dim 1  ()      ->       (a)                  where a and b are of different primes, one all_to_all cannot do both
    dim 2  (b)              ()

A bounded search, for meshes of several primes only: with one prime, an all_to_all and an all_permute always do, and
nothing takes fewer than two steps if `one_exchange` finds none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from autopart.spmd.redistribution.exchange import Axes, Room, one_exchange
from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout

TRIES = 400
"""Intermediate layouts that are tried."""


def two_exchanges(
    axes: PrimeAxes,
    room: Room,
    source: PrimeLayout,
    target: PrimeLayout,
    free: Axes,
    extras: Axes,
) -> tuple[PrimeLayout, PrimeLayout, PrimeLayout] | None:
    """(start, middle, end): slices make start, all_to_alls make middle and end, and a gather the target; or None.

    All of `extras`, which neither source nor target use, are sliced too.
    """
    for start, middle in itertools.islice(_detours(axes, room, source, target, free, extras), TRIES):
        for may_gather in (False, True):
            found = one_exchange(axes, room, middle, target, (), [], may_gather)
            if found is not None:
                return start, middle, found[1]
    return None


def _detours(
    axes: PrimeAxes, room: Room, source: PrimeLayout, target: PrimeLayout, free: Axes, extras: Axes
) -> Iterator[tuple[PrimeLayout, PrimeLayout]]:
    """Layouts before and after a first all_to_all, which moves axes from dims where the target does not have them."""
    inplace = list(source)
    for dim, goal in enumerate(target):
        k = len(inplace[dim])
        while goal[:k] == inplace[dim] and k < len(goal) and goal[k] in free:
            k += 1
            inplace[dim] = goal[:k]
    placed = {a for dim in inplace for a in dim}
    later = [a for dim in target for a in dim if a in free and a not in placed]
    for start in _parkings(axes, room, tuple(inplace), [*later, *extras], ()):
        shared = [_shared(s, t) for s, t in zip(start, target, strict=True)]
        pairs = list(zip(start, target, shared, strict=True))
        must = [d for d, (s, t, k) in enumerate(pairs) if k < min(len(s), len(t))]
        may = [d for d, (s, _, k) in enumerate(pairs) if d not in must and len(s) > k]
        for count in range(len(may) + 1):
            for chosen in itertools.combinations(may, count):
                leaving = [*must, *chosen]
                if leaving:
                    yield from ((start, middle) for middle in _middles(axes, room, start, target, leaving, shared))


def _middles(
    axes: PrimeAxes, room: Room, start: PrimeLayout, target: PrimeLayout, leaving: Axes, shared: Axes
) -> Iterator[PrimeLayout]:
    """Layouts after the axes of the `leaving` dims have moved.

    An axis moves to the place that it has in the target, if all axes major to that place stand there; otherwise it is
    parked on any dim that is not leaving.
    """
    here = list(start)
    moved = []
    for dim in leaving:
        moved += here[dim][shared[dim] :]
        here[dim] = here[dim][: shared[dim]]
    for dim, goal in enumerate(target):
        while dim not in leaving and len(here[dim]) < len(goal) and goal[: len(here[dim])] == here[dim]:
            a = goal[len(here[dim])]
            if a not in moved:
                break
            here[dim] = (*here[dim], a)
            moved.remove(a)
    yield from _parkings(axes, room, tuple(here), moved, leaving)


def _parkings(axes: PrimeAxes, room: Room, layout: PrimeLayout, parked: Axes, closed: Axes) -> Iterator[PrimeLayout]:
    """`layout` with each of `parked` on top of some dim that has room and is not closed."""
    if not parked:
        yield layout
        return
    a, rest = parked[0], parked[1:]
    k = axes.which[a]
    for dim, parts in enumerate(layout):
        cuts = sum(axes.which[x] == k for x in parts)
        if dim not in closed and cuts < room[dim][k]:
            yield from _parkings(axes, room, (*layout[:dim], (*parts, a), *layout[dim + 1 :]), rest, closed)


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    k = 0
    while k < min(len(one), len(other)) and one[k] == other[k]:
        k += 1
    return k
