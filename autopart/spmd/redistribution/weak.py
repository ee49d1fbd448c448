"""Weak types: local sizes alone, which is all that matters up to one permutation (sections 5 and 7.2 of the paper).

A weak type says how often each dim is cut by each prime:

    [3{x}12, 2{y}12] on {x:4, y:6}        2s: 2 1      3s: 0 1

Collectives on weak types: a slice raises counts for free, a gather lowers them, an all_to_all moves them between dims.
One all_to_all can move any number of counts between any dims, except that a dim can not gain one prime and lose
another: tiles of 3 rows and tiles of 2 rows meet in pieces of unequal size. So between two weak types of equal local
size, an all_to_all per prime is enough, and primes that do not clash on a dim share one.

    2s: 2 1  ->  1 2        clash on both dims: two all_to_alls, of the 3s and of the 2s
    3s: 0 1  ->  1 0
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout

Counts = list[list[int]]
"""counts[k][dim]: how often the k-th prime cuts the dim."""


def weak_type(axes: PrimeAxes, layout: PrimeLayout) -> Counts:
    """How often each prime cuts each dim."""
    counts = [[0] * len(layout) for _ in axes.primes]
    for dim, parts in enumerate(layout):
        for axis in parts:
            counts[axes.which[axis]][dim] += 1
    return counts


def meeting_point(source: Sequence[int], target: Sequence[int], room: Sequence[int], total: int) -> list[int] | None:
    """For one prime, `total` cuts that refine both source and target, if they can; spread over dims with room."""
    meet = [max(s, t) for s, t in zip(source, target, strict=True)]
    left = total - sum(meet)
    if left < 0:
        return None
    for dim in _fill_order(target):
        more = min(left, room[dim] - meet[dim])
        meet[dim] += more
        left -= more
    return meet if left == 0 else None


def nearest_pair(
    source: Sequence[int], target: Sequence[int], room: Sequence[int], total: int
) -> tuple[list[int], list[int]] | None:
    """For one prime, a refinement of source and a refinement of target that agree on as many dims as possible.

    Each has `total` cuts. None where `total` cuts do not refine both, or do not fit into `room`.
    """
    start, end = list(source), list(target)
    start_left, end_left = total - sum(start), total - sum(end)
    if start_left < 0 or end_left < 0 or total > sum(room):
        return None
    for dim in range(len(room)):
        more = min(start_left, max(0, end[dim] - start[dim]))
        start[dim] += more
        start_left -= more
        more = min(end_left, max(0, start[dim] - end[dim]))
        end[dim] += more
        end_left -= more
    for dim in _fill_order(target):
        more = min(start_left, end_left, room[dim] - max(start[dim], end[dim]))
        start[dim] += more
        end[dim] += more
        start_left -= more
        end_left -= more
    for dim in range(len(room)):
        more = min(start_left, room[dim] - start[dim])
        start[dim] += more
        start_left -= more
        more = min(end_left, room[dim] - end[dim])
        end[dim] += more
        end_left -= more
    return start, end


def exchange_rounds(start: Counts, end: Counts) -> list[list[int]]:
    """Primes (by index) that each all_to_all moves, as few all_to_alls as possible."""
    moving = [k for k in range(len(start)) if start[k] != end[k]]
    best: list[list[int]] = []
    for order in itertools.permutations(moving):
        rounds: list[list[int]] = []
        for k in order:
            group = next((r for r in rounds if not any(_clash(start, end, k, other) for other in r)), None)
            if group is None:
                rounds.append([k])
            else:
                group.append(k)
        if not best or len(rounds) < len(best):
            best = rounds
        if len(best) <= 1:
            break
    return best


def _clash(start: Counts, end: Counts, k: int, other: int) -> bool:
    pairs = zip(start[k], end[k], start[other], end[other], strict=True)
    return any((b - a) * (d - c) < 0 for a, b, c, d in pairs)


def _fill_order(target: Sequence[int]) -> list[int]:
    return sorted(range(len(target)), key=lambda dim: target[dim] == 0)
