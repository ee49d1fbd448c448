"""The cheapest redistribution: candidates over every prime decomposition, priced, and written out as typed steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from autopart.spmd.redistribution.candidates import Move, candidates
from autopart.spmd.redistribution.cost import CollectiveCost, Elements, named_cost, sent_share
from autopart.spmd.redistribution.primes import Layout, PrimeAxes, ways
from autopart.spmd.redistribution.problem import Problem, problems
from autopart.spmd.redistribution.step import Plan, Step, spanned_axes
from autopart.spmd.redistribution.types import DistributedType, SubAxis, device_strides, merged

MAX_SPLIT_AXES = 4
"""A final gather over at most this many mesh axes is tried one axis at a time, in every order."""


@lru_cache(maxsize=1 << 16)
def plan(
    source: DistributedType,
    target: DistributedType,
    *,
    element_bytes: float = 4,
    cost: str | CollectiveCost = "elements",
) -> Plan:
    """The cheapest sequence of collectives from `source` to `target` that the planner knows of.

    cost  "elements" (Figure 11 of the paper), or an object with `step_cost`, such as `AlphaBeta`; of equal costs, the
          sequence of fewest collectives, then of fewest bytes sent
    No step leaves a device with more elements than the larger of source and target. On meshes whose axes are all
    powers of one prime, no sequence costs less by Figure 11. Plans are cached by the arguments.

    Raises `DistributedTypeError` where meshes or shapes differ, or the target awaits a reduction the source does not.

    >>> mesh = {"x": 4}
    >>> print(plan(DistributedType.parse("[1{x}8, 8]", mesh), DistributedType.parse("[8, 1{x}8]", mesh)))
    [1{x}8, 8] -> [8, 1{x}8] on {x:4}: cost 8, height 1
      all_to_all {0 -> 1} <"x">  [8, 1{x}8]
    """
    model = named_cost(cost)
    best: tuple[tuple[float, ...], Problem | None, list[Move]] = ((math.inf,), None, [])
    for problem in problems(source, target):
        for moves in candidates(problem):
            for variant in _variants(problem, moves, model):
                key = _price(problem, variant, element_bytes, model)
                if key < best[0]:
                    best = (key, problem, variant)
    key, problem, moves = best
    assert problem is not None, "an all_to_all per prime and an all_permute always lead to the target"
    steps = tuple(_steps(problem, moves))
    largest = max(source.local_elements, target.local_elements)
    heights = [max(s.source.local_elements, s.target.local_elements) for s in steps]
    return Plan(source, target, steps, key[0], max(heights) / largest if steps and largest else 1.0)


# ---- pricing


def _price(p: Problem, moves: Sequence[Move], element_bytes: float, model: CollectiveCost) -> tuple[float, ...]:
    """(cost, collectives that communicate, elements sent, steps): the smaller the better."""
    elements = math.prod(p.source_type.shape)
    cost, sent, talking = 0, 0.0, 0
    here, devices = p.source, None
    for move in moves:
        before, after = elements // ways(here, p.axes.sizes), elements // ways(move.after, p.axes.sizes)
        if move.kind != "all_slice":
            spans = () if isinstance(model, Elements) else _spanned(p, _group_parts(p, here, devices, move))
            cost += model.step_cost(move.kind, before, after, element_bytes, spans)
            sent += sent_share(move.kind, _group_size(p, here, move)) * before
            talking += 1
        here, devices = move.after, move.devices
    return cost, talking, sent, len(moves)


def _variants(p: Problem, moves: list[Move], model: CollectiveCost) -> Iterator[list[Move]]:
    """The moves, and for costs that tell axes apart, the final gather cut up by mesh axis in every order."""
    yield moves
    if isinstance(model, Elements) or not moves or moves[-1].kind != "all_gather":
        return
    start = moves[-2].after if len(moves) > 1 else p.source
    names = {p.axes.axes[a].name for s, t in zip(start, p.target, strict=True) for a in s[len(t) :]}
    if not 1 < len(names) <= MAX_SPLIT_AXES:
        return
    seen = set()
    for order in itertools.permutations(sorted(names)):
        here, gathers = start, []
        while here != p.target:
            for name in order:
                shorter = tuple(_peeled(p, s, t, name) for s, t in zip(here, p.target, strict=True))
                if shorter != here:
                    gathers.append(Move("all_gather", shorter))
                    here = shorter
        layouts = tuple(g.after for g in gathers)
        if layouts not in seen:
            seen.add(layouts)
            yield [*moves[:-1], *gathers]


def _peeled(p: Problem, parts: tuple[int, ...], goal: tuple[int, ...], name: str) -> tuple[int, ...]:
    while len(parts) > len(goal) and p.axes.axes[parts[-1]].name == name:
        parts = parts[:-1]
    return parts


def _group_size(p: Problem, here: Layout, move: Move) -> int:
    if move.kind in ("reduce_scatter", "all_reduce"):
        return math.prod([p.axes.sizes[a] for a in move.parts])
    if move.kind == "all_permute":
        return 2
    return math.prod([p.axes.sizes[a] for a in _taken(move.view or here, move.after)])


def _taken(before: Layout, after: Layout) -> tuple[int, ...]:
    return tuple(a for s, t in zip(before, after, strict=True) for a in s[len(t) :])


def _group_parts(p: Problem, here: Layout, devices: tuple[int, ...] | None, move: Move) -> frozenset[int]:
    """Prime axes along which the devices of a group differ."""
    if move.kind in ("reduce_scatter", "all_reduce"):
        return move.parts
    if move.kind == "all_slice":
        return frozenset(_taken(move.after, here))
    if move.kind == "all_permute":
        if devices is not None:
            return frozenset(a for dim in (*here, *move.after) for a in dim)
        return frozenset(_displaced(here, move.after, p.axes))
    parts = _taken(move.view or here, move.after)
    return frozenset(parts) if move.devices is None else _physical(p, parts, move.devices)


def _displaced(before: Layout, after: Layout, axes: PrimeAxes) -> set[int]:
    """Axes that do not cut the same dim into the same tiles before and after."""

    def places(layout: Layout) -> dict[int, tuple[int, int]]:
        found = {}
        for dim, parts in enumerate(layout):
            outer = 1
            for a in parts:
                found[a] = (dim, outer)
                outer *= axes.sizes[a]
        return found

    one, other = places(before), places(after)
    return {a for a in (*one, *other) if one.get(a) != other.get(a)}


def _physical(p: Problem, parts: Sequence[int], devices: tuple[int, ...]) -> frozenset[int]:
    """Prime axes along which devices differ in groups along `parts` of a device map."""
    strides = device_strides(p.axes.mesh)
    weight = [strides[a.name] * a.stride for a in p.axes.axes]
    points, mapped = np.arange(len(devices)), np.array(devices)
    leader = points.copy()
    for a in parts:
        leader -= points // weight[a] % p.axes.sizes[a] * weight[a]
    first = mapped[leader]
    return frozenset(
        a for a, w in enumerate(weight) if np.any(mapped // w % p.axes.sizes[a] != first // w % p.axes.sizes[a])
    )


def _spanned(p: Problem, parts: frozenset[int]) -> tuple[tuple[str, int], ...]:
    sizes: dict[str, int] = {}
    for a in sorted(parts):
        sizes[p.axes.axes[a].name] = sizes.get(p.axes.axes[a].name, 1) * p.axes.sizes[a]
    return tuple(sizes.items())


# ---- writing out


def _steps(p: Problem, moves: Sequence[Move]) -> Iterator[Step]:
    here, pending = p.source_type, list(p.source_type.pending)
    layout = p.source
    for move in moves:
        if move.parts:
            pending = _still(p, pending, move.parts)
        after = _type(p, move.after, tuple(pending), move.devices)
        view = (
            here
            if move.view is None or move.devices == here.devices
            else _type(p, move.view, here.pending, move.devices)
        )
        moves_data_only = move.kind in ("all_permute", "all_reduce")
        gathered, sliced = ((), ()) if moves_data_only else _changes(p, move.view or layout, move.after)
        parts = _group_parts(p, layout, here.devices, move)
        axes = spanned_axes(tuple(p.axes.axes[a] for a in parts), p.axes.mesh)
        if move is moves[-1]:
            after = p.target_type
        yield Step(move.kind, here, after, view, gathered, sliced, axes, move.code)
        here, layout = after, move.after


def _type(p: Problem, layout: Layout, pending: tuple, devices: tuple[int, ...] | None) -> DistributedType:
    axes = tuple(p.axes.minor_first(parts) for parts in layout)
    return DistributedType(p.source_type.shape, axes, p.axes.mesh, pending, devices)


def _still(p: Problem, pending: list[tuple[SubAxis, int]], done: frozenset[int]) -> list[tuple[SubAxis, int]]:
    """`pending` without the prime axes that are done."""
    left = []
    for axis, code in pending:
        rest = [a for a in reversed(p.axes.parts(axis)) if a not in done]
        left += [(part, code) for part in merged([p.axes.axes[a] for a in rest])]
    return left


def _changes(p: Problem, before: Layout, after: Layout):
    """(dim, axes minor to major) taken away and added, both cut into the same pieces."""
    taken = [(d, s[len(t) :]) for d, (s, t) in enumerate(zip(before, after, strict=True)) if len(s) > len(t)]
    added = [(d, t[len(s) :]) for d, (s, t) in enumerate(zip(before, after, strict=True)) if len(t) > len(s)]
    joined = set.intersection(*(_neighbours(p, side) for side in (taken, added) if side))
    return tuple(tuple((d, _pieces(p, parts, joined)) for d, parts in side) for side in (taken, added))


def _neighbours(p: Problem, side: Sequence[tuple[int, tuple[int, ...]]]) -> set[tuple[int, int]]:
    """Pairs (major, minor) of neighbouring parts of one mesh axis that stand next to each other."""
    pairs = {pair for _, parts in side for pair in itertools.pairwise(parts)}
    axes = p.axes.axes
    return {
        (a, b) for a, b in pairs if axes[a].name == axes[b].name and axes[b].stride * axes[b].size == axes[a].stride
    }


def _pieces(p: Problem, parts: tuple[int, ...], joined: set[tuple[int, int]]) -> tuple[SubAxis, ...]:
    pieces: list[SubAxis] = []
    for k, a in enumerate(parts):
        axis = p.axes.axes[a]
        if k and (parts[k - 1], a) in joined:
            major = pieces.pop()
            axis = SubAxis(axis.name, major.size * axis.size, axis.stride)
        pieces.append(axis)
    return tuple(reversed(pieces))
