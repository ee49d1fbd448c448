"""Plans for costs that tell mesh axes apart: a shortest path on few axes at a time.

    {slow, fast}, [8, 4{slow}8] -> [8, 4{fast}8]     Figure 11 sees one all_permute of a tile either way;
      all_slice  [4{fast}8, 4{slow}8]                over the slow axis it moves half a tile after this slice,
      all_permute, all_gather                        and the gather is on the fast axis

Where an axis is ten times slower than another, what matters is which axes a collective spans, and candidates made for
element counts may take the slow one. So the types themselves are searched, from the source, one mesh axis per slice,
exchange, gather or reduction and two per permutation; mesh axes are whole unless source or target cut them. What the
search finds is improved by merging neighbouring collectives of a kind where that is cheaper.

The search drops paths that cost as much as the best candidate, and gives up after `EDGES` edges.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from autopart.spmd.redistribution.planned_steps import PlannedStep
from autopart.spmd.redistribution.planning_problem import PlanningProblem
from autopart.spmd.redistribution.pricing import StepPricing
from autopart.spmd.redistribution.primes import PrimeLayout, ways

EDGES = 12_000
"""Edges looked at before giving up."""

ORDERS = 24
"""Orders of mesh axes in which a final gather is cut up."""

Node = tuple[PrimeLayout, frozenset[int]]
"""A layout, and the axes that are still pending."""


def shortest_path(p: PlanningProblem, price: StepPricing, bound: float) -> list[PlannedStep] | None:
    """The cheapest steps on few axes at a time, merged where that is cheaper; None if none costs less than `bound`."""
    most = max(price.local(p.source), price.local(p.target))
    start: Node = (p.source, p.pending)
    best: dict[Node, float] = {start: 0.0}
    came: dict[Node, tuple[Node, PlannedStep]] = {}
    numbers = itertools.count()
    queue = [(0.0, next(numbers), start)]
    edges = 0
    while queue and edges < EDGES:
        cost, _, node = heapq.heappop(queue)
        if cost > best[node]:
            continue
        if node == (p.target, frozenset()):
            return _merged(p, price, _back(came, node))
        for step, left in _edges(p, node):
            edges += 1
            total = cost + (0.0 if step.kind == "all_slice" else price.step(node[0], step))
            after = (step.after, left)
            if total < bound and total < best.get(after, bound) and price.local(step.after) <= most:
                best[after] = total
                came[after] = (node, step)
                heapq.heappush(queue, (total, next(numbers), after))
    return None


def split_gathers(p: PlanningProblem, steps: list[PlannedStep]) -> Iterator[list[PlannedStep]]:
    """The steps with a final gather over several mesh axes cut up by axis, in different orders."""
    if not steps or steps[-1].kind != "all_gather":
        return
    start = steps[-2].after if len(steps) > 1 else p.source
    names = {p.axes.axes[a].name for s, t in zip(start, p.target, strict=True) for a in s[len(t) :]}
    if len(names) == 1:
        return
    seen = set()
    for order in itertools.islice(itertools.permutations(sorted(names)), ORDERS):
        here, gathers = start, []
        while here != p.target:
            for name in order:
                shorter = tuple(_peeled(p, s, t, name) for s, t in zip(here, p.target, strict=True))
                if shorter != here:
                    gathers.append(PlannedStep("all_gather", shorter))
                    here = shorter
        if tuple(gathers) not in seen:
            seen.add(tuple(gathers))
            yield [*steps[:-1], *gathers]


def _peeled(p: PlanningProblem, parts: tuple[int, ...], goal: tuple[int, ...], name: str) -> tuple[int, ...]:
    while len(parts) > len(goal) and p.axes.axes[parts[-1]].name == name:
        parts = parts[:-1]
    return parts


def _back(came: dict[Node, tuple[Node, PlannedStep]], node: Node) -> list[PlannedStep]:
    steps = []
    while node in came:
        node, step = came[node]
        steps.append(step)
    return steps[::-1]


# ---- edges


def _edges(p: PlanningProblem, node: Node) -> Iterator[tuple[PlannedStep, frozenset[int]]]:
    layout, pending = node
    used = {a for dim in layout for a in dim}
    spare = [a for a in sorted(p.free | p.pending) if a not in used and a not in pending]
    grown = {a: list(_with(p, layout, a)) for a in spare}
    for a in spare:
        yield from ((PlannedStep("all_slice", after), pending) for after in grown[a])
    for code, parts in p.reductions:
        waiting = parts & pending
        if waiting:
            yield PlannedStep("all_reduce", layout, waiting, code), pending - waiting
            for a in sorted(waiting):
                done = frozenset((a,))
                yield from (
                    (PlannedStep("reduce_scatter", after, done, code), pending - done) for after in _with(p, layout, a)
                )
            break
    if all(s[: len(t)] == t for s, t in zip(layout, p.target, strict=True)) and layout != p.target:
        yield PlannedStep("all_gather", p.target), pending
    for dim, parts in enumerate(layout):
        for count in range(1, len(parts) + 1):
            kept = _changed(layout, {dim: parts[:-count]})
            yield PlannedStep("all_gather", kept), pending
            for other, others in enumerate(kept):
                longer = (*others, *parts[-count:])
                if other != dim and _fits(p, other, longer):
                    yield PlannedStep("all_to_all", _changed(kept, {other: longer})), pending
    yield from ((PlannedStep("all_permute", after), pending) for after in _swapped(p, layout, spare))


def _with(p: PlanningProblem, layout: PrimeLayout, axis: int) -> Iterator[PrimeLayout]:
    for dim, parts in enumerate(layout):
        longer = (*parts, axis)
        if _fits(p, dim, longer):
            yield _changed(layout, {dim: longer})


def _swapped(p: PlanningProblem, layout: PrimeLayout, spare: Sequence[int]) -> Iterator[PrimeLayout]:
    """Two axes of equal size change places, on the array or with one that is not on it."""
    placed = [a for dim in layout for a in dim]
    for one, other in (*itertools.combinations(placed, 2), *itertools.product(placed, spare)):
        if p.axes.sizes[one] == p.axes.sizes[other]:
            turned = {one: other, other: one}
            yield tuple(tuple(turned.get(a, a) for a in dim) for dim in layout)


def _fits(p: PlanningProblem, dim: int, parts: tuple[int, ...]) -> bool:
    return p.source_type.shape[dim] % ways((parts,), p.axes.sizes) == 0


def _changed(layout: PrimeLayout, dims: dict[int, tuple[int, ...]]) -> PrimeLayout:
    return tuple(dims.get(d, parts) for d, parts in enumerate(layout))


# ---- merging neighbours


def _merged(p: PlanningProblem, price: StepPricing, steps: list[PlannedStep]) -> list[PlannedStep]:
    """`steps` with neighbours of one kind merged where that is cheaper, or as cheap."""
    number = 0
    while number + 1 < len(steps):
        here = steps[number - 1].after if number else p.source
        one, other = steps[number], steps[number + 1]
        both = _both(here, one, other)
        if both is not None and price.step(here, both) <= price.step(here, one) + price.step(one.after, other):
            steps = [*steps[:number], both, *steps[number + 2 :]]
            number = max(0, number - 1)
        else:
            number += 1
    return steps


def _both(here: PrimeLayout, one: PlannedStep, other: PlannedStep) -> PlannedStep | None:
    """One collective that does what two do, if there is one."""
    if (one.kind, one.code) != (other.kind, other.code):
        return None
    if one.kind == "all_to_all":
        used, wanted = ({a for dim in layout for a in dim} for layout in (here, other.after))
        ends = [s[: len(t)] == t or t[: len(s)] == s for s, t in zip(here, other.after, strict=True)]
        if used != wanted or not all(ends):
            return None
    return PlannedStep(one.kind, other.after, one.parts | other.parts, one.code)
