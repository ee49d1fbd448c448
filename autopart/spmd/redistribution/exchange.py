"""One all_to_all that is exact: look ahead from the target, and choose where every axis has to stand.

    source   dim 0  (x)        target  (a)          start  (x)   (b)       what slices can make of the source, for free
             dim 1  ()                 (b, x)       end    (a)   (b, x)    a refinement of the target: one gather away
             ...

A single all_to_all takes axes away from the minor end of some dims and adds the same axes at the minor end of others.
So on each dim, source and target agree but for a minor end:

    plus    the target is longer: leading axes that are free are sliced in place, the rest must be added; a free axis
            among the rest is parked first on a dim that loses axes
    minus   the source is longer: if an axis of this dim is needed on another dim, the dim gives up that axis and every
            axis minor to it; an axis given up that no dim needs is put at the minor end of some dim, and the final
            gather takes it away

Where tiles have room for what is parked and left, one all_to_all does it; further free axes then cut the tiles smaller
(over-partitioning). All axes of one prime are alike for room, so this is counting, not search, except for which
idle dims are used: at most two of them, all choices tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout

Room = Sequence[Sequence[int]]
Dims = list[tuple[int, ...]]
Axes = Sequence[int]

IDLE, LOSES, GAINS = 0, 1, 2
MAX_CHANGED_ROLES = 2


def one_exchange(
    axes: PrimeAxes,
    room: Room,
    source: PrimeLayout,
    target: PrimeLayout,
    free: Axes,
    extras: Axes,
    may_gather: bool,
) -> tuple[PrimeLayout, PrimeLayout] | None:
    """(start, end) such that slices make start of source, at most one all_to_all makes end of it, gathers the target.

    room[dim][k]  how often the k-th prime divides the global dim
    free          axes that may be sliced, in the order of parking
    extras        axes of free that the target has not, to be sliced all the same where there is room
    may_gather    False where the end must be the target itself
    None where no all_to_all does it.
    """
    rank = len(source)
    starts, ends = list(source), list(target)
    rests: list[tuple[int, ...]] = [()] * rank
    gone: list[tuple[int, ...]] = [()] * rank
    moved: set[int] = set()
    for dim in range(rank):
        s, t = source[dim], target[dim]
        shared = min(len(s), len(t))
        if s[:shared] != t[:shared]:
            return None
        k = len(s)
        while k < len(t) and t[k] in free:
            k += 1
        if k > len(s):
            starts[dim] = t[:k]
        rests[dim] = t[k:]
        moved.update(t[k:])
    left = set()
    for dim in range(rank):
        s, t = source[dim], target[dim]
        if len(s) > len(t):
            if not may_gather and not moved.issuperset(s[len(t) :]):
                return None
            first = next((k for k in range(len(t), len(s)) if s[k] in moved), len(s))
            gone[dim] = s[first:]
            ends[dim] = s[:first]
            left.update(a for a in gone[dim] if a not in moved)
    parked = [a for a in free if a in moved]
    if len(moved) - len(parked) + len(left) != sum(map(len, gone)):
        return None
    if (left or extras) and not may_gather:
        if left:
            return None
        extras = ()
    roles = [GAINS if rests[d] else LOSES if gone[d] else IDLE for d in range(rank)]
    chosen = _choose_roles(axes, room, starts, ends, roles, parked, sorted(left), extras)
    if chosen is None:
        return None
    roles, still, through = chosen
    for dim, axis in still:
        starts[dim] = (*starts[dim], axis)
        ends[dim] = (*ends[dim], axis)
    _place(axes, room, starts, roles, LOSES, [*parked, *through])
    _place(axes, room, ends, roles, GAINS, [*sorted(left), *through])
    return tuple(starts), tuple(ends)


def _choose_roles(
    axes: PrimeAxes, room: Room, starts: Dims, ends: Dims, roles: list[int], parked: Axes, left: Axes, extras: Axes
) -> tuple[list[int], list[tuple[int, int]], list[int]] | None:
    """Roles of the dims, (dim, axis) of extras that stay where they are sliced, and extras that move; most extras."""
    idle = [d for d, role in enumerate(roles) if role == IDLE]
    best, best_ways = None, -1
    for changed in range(min(MAX_CHANGED_ROLES, len(idle), len(parked) + len(left)) + 1):
        for dims in itertools.combinations(idle, changed):
            for new in itertools.product((LOSES, GAINS), repeat=changed):
                tried = list(roles)
                for dim, role in zip(dims, new, strict=True):
                    tried[dim] = role
                found = _fit(axes, room, starts, ends, tried, idle, parked, left, extras)
                if found is not None and found[0] > best_ways:
                    best_ways, best = found[0], (tried, *found[1:])
        if best is not None:
            return best
    return None


def _fit(
    axes: PrimeAxes,
    room: Room,
    starts: Dims,
    ends: Dims,
    roles: list[int],
    idle: list[int],
    parked: Axes,
    left: Axes,
    extras: Axes,
) -> tuple[int, list[tuple[int, int]], list[int]] | None:
    """(ways, still, through) if everything parked and left has room, else None."""
    space = [_space(axes, room, ends if r == GAINS else starts, d) for d, r in enumerate(roles)]
    lose = [sum(space[d][k] for d, r in enumerate(roles) if r == LOSES) for k in range(len(axes.primes))]
    gain = [sum(space[d][k] for d, r in enumerate(roles) if r == GAINS) for k in range(len(axes.primes))]
    for axis in parked:
        lose[axes.which[axis]] -= 1
    for axis in left:
        gain[axes.which[axis]] -= 1
    if min(lose, default=0) < 0 or min(gain, default=0) < 0:
        return None
    still, through, ways = [], [], 1
    idle = sorted(idle, key=lambda d: (roles[d] != IDLE, len(ends[d]) == 0))
    spare = {IDLE: [64] * len(lose), LOSES: lose, GAINS: gain}
    for axis in extras:
        k = axes.which[axis]
        dim = next((d for d in idle if space[d][k] and spare[roles[d]][k]), None)
        if dim is not None:
            space[dim][k] -= 1
            spare[roles[dim]][k] -= 1
            still.append((dim, axis))
        elif lose[k] and gain[k]:
            lose[k] -= 1
            gain[k] -= 1
            through.append(axis)
        else:
            continue
        ways *= axes.sizes[axis]
    return ways, still, through


def _space(axes: PrimeAxes, room: Room, layout: Dims, dim: int) -> list[int]:
    space = list(room[dim])
    for axis in layout[dim]:
        space[axes.which[axis]] -= 1
    return space


def _place(axes: PrimeAxes, room: Room, layout: Dims, roles: list[int], role: int, placed: Axes) -> None:
    """Appends `placed` to the dims that play `role`, where there is room."""
    for axis in placed:
        k = axes.which[axis]
        for dim, own in enumerate(roles):
            if own == role and _space(axes, room, layout, dim)[k] > 0:
                layout[dim] = (*layout[dim], axis)
                break
