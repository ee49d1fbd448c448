"""Small random pairwise problems, and their optima by looking at every choice."""

from __future__ import annotations

import itertools
import math

import numpy as np

from autopart.search.ilp.solver import PairwiseProblem


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
