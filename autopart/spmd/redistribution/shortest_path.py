"""The paper's own search (section 7.2): the shortest path over weak types, as a bound to measure plans against.

    node  how often each prime cuts each dim; the local shape says the same
    edge  slice a dim by a prime, free; gather one dim; all_to_all from one dim to another; on any number of axes

No sequence of the paper's collectives costs less by Figure 11, with or without permutations; one permutation of the
target's size is what it takes at most to make the path a real one (Theorem 6.7). Collectives that work on several
dims at once, which `plan` uses, can cost less.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from autopart.spmd.redistribution.planning_problem import problems
from autopart.spmd.redistribution.primes import valuations
from autopart.spmd.redistribution.types import DistributedType
from autopart.spmd.redistribution.weak import weak_type

Node = tuple[tuple[int, ...], ...]
"""Per dim, how often each prime cuts it."""


def weak_shortest_path(source: DistributedType, target: DistributedType) -> int:
    """Figure 11 cost, in elements per device, of the cheapest weak sequence that stays below the larger of the two."""
    problem = problems(source, target)[0]
    primes = problem.axes.primes
    begin, end = (_node(weak_type(problem.axes, layout)) for layout in (problem.source, problem.target))
    have = [problem.axes.sizes.count(p) for p in primes]
    room = [valuations(n, primes) for n in source.shape]
    elements = math.prod(source.shape)
    most = max(source.local_elements, target.local_elements)

    def local(node: Node) -> int:
        return elements // math.prod([p**c for dim in node for p, c in zip(primes, dim, strict=True)])

    best, queue = {begin: 0}, [(0, begin)]
    while queue:
        cost, node = heapq.heappop(queue)
        if node == end:
            return cost
        if cost > best[node]:
            continue
        for kind, after in _edges(node, room, have):
            size = local(after)
            total = cost + (0 if kind == "all_slice" else size)
            if size <= most and total < best.get(after, math.inf):
                best[after] = total
                heapq.heappush(queue, (total, after))
    raise AssertionError("gathering and slicing connect all weak types")


def _node(counts: list[list[int]]) -> Node:
    return tuple(zip(*counts, strict=True))


def _edges(node: Node, room: list[list[int]], have: list[int]) -> Iterator[tuple[str, Node]]:
    used = [sum(dim[k] for dim in node) for k in range(len(have))]
    for dim, counts in enumerate(node):
        for k, count in enumerate(counts):
            if used[k] < have[k] and count < room[dim][k]:
                yield "all_slice", _changed(node, {dim: [c + (j == k) for j, c in enumerate(counts)]})
        for taken in itertools.product(*(range(c + 1) for c in counts)):
            if not any(taken):
                continue
            kept = [c - t for c, t in zip(counts, taken, strict=True)]
            yield "all_gather", _changed(node, {dim: kept})
            for other, others in enumerate(node):
                grown = [c + t for c, t in zip(others, taken, strict=True)]
                if other != dim and all(g <= r for g, r in zip(grown, room[other], strict=True)):
                    yield "all_to_all", _changed(node, {dim: kept, other: grown})


def _changed(node: Node, dims: dict[int, list[int]]) -> Node:
    return tuple(tuple(dims.get(d, counts)) for d, counts in enumerate(node))
