"""Small random pairwise problems, and their optima by looking at every choice."""

from __future__ import annotations

import itertools
import math

import numpy as np

from autopart.pairwise import PairwiseProblem


def random_problem(
    seed: int, nodes: int = 7, most: int = 4, edges: int = 9, forbidden: float = 0.15, tight: float | None = 0.6
) -> PairwiseProblem:
    """Integer costs, also negative ones; `tight` places the limit between the least and the most usage."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most + 1, nodes)
    costs = [forbid(rng, rng.integers(-5, 40, k).astype(float), forbidden / 3) for k in counts]
    usages = [rng.integers(0, 20, k) for k in counts]
    starts = rng.integers(0, 10, nodes)
    intervals = np.stack([starts, starts + rng.integers(0, 8, nodes)], 1)
    pairs = [rng.choice(nodes, 2, replace=False).tolist() for _ in range(edges)]
    matrices = [
        (u, v, forbid(rng, rng.integers(0, 30, (counts[u], counts[v])).astype(float), forbidden)) for u, v in pairs
    ]
    free = PairwiseProblem.of(costs, usages, intervals, matrices)
    if tight is None:
        return free
    least = free.usage_of([int(np.argmin(row)) for row in usages])
    most_used = free.usage_of([int(np.argmax(row)) for row in usages])
    limit = float(round(least + tight * (most_used - least)))
    return PairwiseProblem.of(costs, usages, intervals, matrices, limit)


def forbid(rng: np.random.Generator, entries: np.ndarray, share: float) -> np.ndarray:
    entries[rng.random(entries.shape) < share] = np.inf
    return entries


def optimum(problem: PairwiseProblem) -> float:
    """The least cost of all choices that fit; inf if there is none."""
    choices = itertools.product(*(range(k) for k in problem.strategies))
    return min((problem.cost_of(c) for c in choices if problem.fits(c)), default=math.inf)


def layered_problem(seed: int, layers: int, width: int = 40, layouts: int = 6, tight: float = 0.3) -> PairwiseProblem:
    """A large problem such as programs give: layers of ops in which half of the neighbours must have equal layouts.

    Parameters live throughout, all else for a few ops. `tight` places the limit between the least usage, of one layout
    everywhere, and the most.
    """
    rng, count = np.random.default_rng(seed), layers * width
    layout = [rng.permutation(layouts) for _ in range(count)]
    costs = [rng.integers(0, 1000, layouts) for _ in range(count)]
    size = rng.integers(1, 1000, count)
    usages = [size[i] // (1 + layout[i]) for i in range(count)]
    begin = np.arange(count)
    lasts = rng.random(count) < 0.1
    live = np.stack([np.where(lasts, 0, begin), np.where(lasts, count, begin + rng.integers(1, 2 * width, count))], 1)
    edges = []
    for i in range(1, count):
        for j in {i - 1, max(0, i - int(rng.integers(2, width)))}:
            moved = rng.integers(1, 500, (layouts, layouts)) * (layout[j][:, None] != layout[i])
            edges.append((j, i, np.where(moved > 0, np.inf, 0.0) if rng.random() < 0.5 else moved))
    free = PairwiseProblem.of(costs, usages, live, edges)
    least, most = (free.usage_of([int((own == label).argmax()) for own in layout]) for label in (layouts - 1, 0))
    return PairwiseProblem.of(costs, usages, live, edges, least + tight * (most - least))
