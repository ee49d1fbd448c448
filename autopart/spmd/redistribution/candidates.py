"""Candidate redistributions in normal form: slices, then all_to_all or all_permute, then one gather (section 4.3).

    local size
        source
          \\                                 / target
           slices                           /
             \\___ all_to_all, all_permute _/  gather

A slice is free, so it comes first, and it may cut along axes that neither source nor target use (over-partitioning):
what follows then moves smaller tiles. The gather costs as much from small tiles as from large ones, and merged into one
it costs what any gather to the target must. So the cheapest sequence is the one with the fewest exchanges on the
smallest tiles, and there are few shapes it can have:

    no exchange          source and target have a common refinement
    one all_to_all       `exchange.one_exchange`: exact, by choice of where axes stand
    one all_permute      weak source and target have a common refinement
    an all_to_all per clashing group of primes, then an all_permute     always; `weak.exchange_rounds`
    two all_to_alls      where primes clash, and the axes can be parked such that no all_permute is needed

each with or without a gather, with or without over-partitioning. `plan` prices them all. On meshes of one prime the
cheapest of them by Figure 11 is optimal: the test of all layouts on {2, 2, 2} holds it to a brute-force search.

Pending reductions come first, between slices: a reduce_scatter is a slice that costs something. They are not
over-partitioned, so that a sum to be replicated is one all_reduce, and not a slice, a reduce_scatter and a gather that
send fewer elements by Figure 11.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from autopart.spmd.redistribution.device_map import rewritten
from autopart.spmd.redistribution.exchange import one_exchange
from autopart.spmd.redistribution.planned_steps import PlannedStep
from autopart.spmd.redistribution.planning_problem import PlanningProblem
from autopart.spmd.redistribution.primes import PrimeLayout
from autopart.spmd.redistribution.two_step_exchange import two_exchanges
from autopart.spmd.redistribution.weak import Counts, exchange_rounds, meeting_point, nearest_pair, weak_type


def candidates(p: PlanningProblem) -> Iterator[list[PlannedStep]]:
    """Sequences of collectives from source to target, each correct, never above the larger of the two."""
    wanted = {a for dim in p.target for a in dim}
    scatters = [p.pending] if p.pending <= wanted else [p.pending, p.pending & wanted]
    for scattered in scatters:
        yield from _with_scattered(p, scattered)


def _with_scattered(p: PlanningProblem, scattered: frozenset[int]) -> Iterator[list[PlannedStep]]:
    used = {a for dim in (*p.source, *p.target) for a in dim}
    idle = [a for a in sorted(p.free) if a not in used and not p.pending]
    free = [*(a for a in sorted(p.free) if a in used), *idle, *sorted(scattered)]
    pending = [a for a in sorted(scattered) if a not in used]
    extras = [*pending, *idle]
    exact = one_exchange(p.axes, p.room, p.source, p.target, free, [], False)
    if exact is not None:
        yield _normal_form(p, scattered, *exact)
    gathered = one_exchange(p.axes, p.room, p.source, p.target, free, pending, True)
    if gathered is not None:
        yield _normal_form(p, scattered, *gathered)
        if gathered[0] == gathered[1] and not p.pending:
            return
        if extras != pending:
            spread = one_exchange(p.axes, p.room, p.source, p.target, free, extras, True)
            if spread is not None:
                yield _normal_form(p, scattered, *spread)
    for may_gather, over in ((False, False), (True, False), (True, True)):
        yield from _by_local_sizes(p, scattered, free, may_gather, over)
    if exact is None and gathered is None:
        yield from _slicing_last(p, scattered, free)
    if exact is None and len(p.axes.primes) > 1 and not p.pending:
        for sliced in ([], extras) if extras else ([],):
            found = two_exchanges(p.axes, p.room, p.source, p.target, free, sliced)
            if found is not None:
                yield _normal_form(p, scattered, *found)


def _normal_form(
    p: PlanningProblem, scattered: frozenset[int], start: PrimeLayout, *exchanged: PrimeLayout
) -> list[PlannedStep]:
    """Slices to `start`, an all_to_all to each of `exchanged`, and the gather."""
    steps, here = _begin(p, scattered, start), start
    for layout in exchanged:
        if layout != here:
            steps.append(PlannedStep("all_to_all", layout))
            here = layout
    if here != p.target:
        steps.append(PlannedStep("all_gather", p.target))
    return steps


def _begin(p: PlanningProblem, scattered: frozenset[int], start: PrimeLayout) -> list[PlannedStep]:
    """Slices, and reductions in their order, that lead from the source to `start`."""
    here, steps = list(p.source), []

    def grow(parts: frozenset[int]) -> bool:
        before = list(here)
        for dim, goal in enumerate(start):
            k = len(here[dim])
            while k < len(goal) and goal[k] in parts:
                k += 1
            here[dim] = goal[:k]
        return here != before

    if grow(p.free):
        steps.append(PlannedStep("all_slice", tuple(here)))
    for code, parts in p.reductions:
        rest = set(parts)
        while rest & scattered:
            before = {a for dim in here for a in dim}
            if grow(frozenset(rest & scattered)):
                done = frozenset({a for dim in here for a in dim} - before)
                steps.append(PlannedStep("reduce_scatter", tuple(here), done, code))
                rest -= done
            elif grow(p.free | (p.pending - _still_pending(p, code, rest))):
                steps.append(PlannedStep("all_slice", tuple(here)))
            else:
                break
        if rest:
            steps.append(PlannedStep("all_reduce", tuple(here), frozenset(rest), code))
    if grow(p.free | p.pending):
        steps.append(PlannedStep("all_slice", tuple(here)))
    return steps


def _still_pending(p: PlanningProblem, code: int, rest: set[int]) -> frozenset[int]:
    """Axes whose reduction is not done when `rest` is what is left of the reductions by `code`."""
    later, found = set(rest), False
    for other, parts in p.reductions:
        if found:
            later |= parts
        found = found or (other == code and bool(parts & rest))
    return frozenset(later)


# ---- by local sizes, with an all_permute


def _by_local_sizes(
    p: PlanningProblem, scattered: frozenset[int], free: Sequence[int], may_gather: bool, over: bool
) -> Iterator[list[PlannedStep]]:
    source, target = weak_type(p.axes, p.source), weak_type(p.axes, p.target)
    primes = range(len(p.axes.primes))
    room = [[dim[k] for dim in p.room] for k in primes]
    most = [0] * len(primes)
    for a in free:
        most[p.axes.which[a]] += 1
    most = [n + sum(s) for n, s in zip(most, source, strict=True)]
    spare = sorted(p.unused_by_target - (p.free - set(free)))
    limit = [sum(t) + n for t, n in zip(target, _count(p, spare), strict=True)]
    starts, ends = [], []
    for k in primes:
        s, t = source[k], target[k]
        top = min(most[k], limit[k], sum(room[k])) if may_gather else sum(t)
        together = sum(map(max, s, t))
        totals = range(top, together - 1, -1) if over else range(together, top + 1)
        meet = next((m for n in totals if (m := meeting_point(s, t, room[k], n)) is not None), None)
        least = max(sum(s), sum(t)) if may_gather else sum(t)
        pair = (meet, meet) if meet is not None else nearest_pair(s, t, room[k], top if over else least)
        if pair is None:
            return
        starts.append(pair[0])
        ends.append(pair[1])
    end = _refined(p, p.target, ends, spare, [p.source])
    start = _refined(p, p.source, starts, sorted(free, key=lambda a: (a not in scattered, a)), [end, p.target])
    yield _exchanged_and_permuted(p, scattered, start, end, starts, ends)
    sliced_first = tuple(
        (*s, *sorted(dim[len(s) :], key=lambda a: (a in scattered, a))) for s, dim in zip(p.source, start, strict=True)
    )
    if scattered and sliced_first != start:
        yield _exchanged_and_permuted(p, scattered, sliced_first, end, starts, ends)


def _exchanged_and_permuted(
    p: PlanningProblem, scattered: frozenset[int], start: PrimeLayout, end: PrimeLayout, starts: Counts, ends: Counts
) -> list[PlannedStep]:
    rounds = exchange_rounds(starts, ends)
    steps = _begin(p, scattered, start)
    orders = itertools.permutations(rounds) if len(rounds) > 1 else [rounds]
    exchanged = min((_exchanges(p, start, starts, ends, list(order)) for order in orders), key=_device_maps)
    here, devices = (exchanged[-1].after, exchanged[-1].devices) if exchanged else (start, None)
    steps += exchanged
    if here != end or devices is not None:
        steps.append(PlannedStep("all_permute", end))
    if end != p.target:
        steps.append(PlannedStep("all_gather", p.target))
    return steps


def _count(p: PlanningProblem, parts: Collection[int]) -> list[int]:
    counts = [0] * len(p.axes.primes)
    for a in parts:
        counts[p.axes.which[a]] += 1
    return counts


def _device_maps(steps: Sequence[PlannedStep]) -> int:
    return sum(m.devices is not None for m in steps)


def _refined(
    p: PlanningProblem, layout: PrimeLayout, counts: Counts, spare: Sequence[int], alike: Sequence[PrimeLayout]
) -> PrimeLayout:
    """`layout` cut further until each dim has `counts`, by `spare` axes, preferring those that stand so in `alike`."""
    have, left = weak_type(p.axes, layout), list(spare)
    dims = list(layout)
    for like in alike:
        for dim, parts in enumerate(like):
            while len(dims[dim]) < len(parts):
                a = parts[len(dims[dim])]
                k = p.axes.which[a]
                if a not in left or have[k][dim] >= counts[k][dim]:
                    break
                dims[dim] = (*dims[dim], a)
                have[k][dim] += 1
                left.remove(a)
    for k, row in enumerate(counts):
        for dim, count in enumerate(row):
            for a in [x for x in left if p.axes.which[x] == k][: count - have[k][dim]]:
                dims[dim] = (*dims[dim], a)
                left.remove(a)
    return tuple(dims)


def _exchanges(
    p: PlanningProblem, start: PrimeLayout, starts: Counts, ends: Counts, rounds: list[list[int]]
) -> list[PlannedStep]:
    """One all_to_all per round. The axes to move are the minor-most of their primes, brought to the end if need be."""
    here, devices, steps = start, None, []
    for primes in rounds:
        view, after, moved = [], [], []
        for dim, parts in enumerate(here):
            quota = {k: starts[k][dim] - ends[k][dim] for k in primes}
            taken = []
            for a in reversed(parts):
                k = p.axes.which[a]
                if quota.get(k, 0) > 0:
                    quota[k] -= 1
                    taken.append(a)
            kept = tuple(a for a in parts if a not in taken)
            view.append((*kept, *reversed(taken)))
            after.append(kept)
            moved += reversed(taken)
        for dim in range(len(here)):
            for k in primes:
                for _ in range(ends[k][dim] - starts[k][dim]):
                    wanted = p.target[dim][len(after[dim]) : len(after[dim]) + 1]
                    ready = [a for a in (*wanted, *moved) if a in moved and p.axes.which[a] == k]
                    a = ready[0]
                    moved.remove(a)
                    after[dim] = (*after[dim], a)
        if tuple(view) != here:
            devices = rewritten(p.axes, here, tuple(view), devices)
        here = tuple(after)
        steps.append(PlannedStep("all_to_all", here, view=tuple(view), devices=devices))
    return steps


# ---- slices that come last


def _slicing_last(p: PlanningProblem, scattered: frozenset[int], free: Sequence[int]) -> Iterator[list[PlannedStep]]:
    """One all_to_all to a target without its minor free axes, which are sliced at the end."""
    shorter = []
    for s, t in zip(p.source, p.target, strict=True):
        k = len(t)
        while k > len(s) and t[k - 1] in p.free:
            k -= 1
        shorter.append(t[:k])
    if tuple(shorter) == p.target:
        return
    found = one_exchange(p.axes, p.room, p.source, tuple(shorter), free, [], False)
    if found is None:
        return
    start, end = found
    steps = _begin(p, scattered, start)
    if start != end:
        steps.append(PlannedStep("all_to_all", end))
    steps.append(PlannedStep("all_slice", p.target))
    yield steps
