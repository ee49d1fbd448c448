"""Neighbourhoods: part of a plan chosen anew by an integer program, the rest held as it is.

    nodes      a - b - c - d - e        the incumbent has a choice for each
    free       b, c, d                  grown from one node along edges
    problem    b, c, d, with what their edges to a and e cost for the choices there, and the memory that is left

Several are solved at a time, by the workers, and each becomes decisions there. A neighbourhood is small, so that it is
solved to the end, and its answer does not depend on how fast the worker is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from autopart.pairwise import PairwiseProblem, solve
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.ilp.decode import Decisions, Wanted, Weights, decode
from autopart.search.ilp.sharding_model import Model

SECONDS = 20.0
"""Of a neighbourhood's solver at most: far more than it needs."""


_models: WeakKeyDictionary[SearchTask, dict[bool, Model]] = WeakKeyDictionary()
"""The models that a process has made, for as long as it has the task."""


def model_of(task: SearchTask, *, grouped: bool) -> Model:
    """The model of a task without prices, made once in a process."""
    known = _models.setdefault(task, {})
    if grouped not in known:
        known[grouped] = Model.of(task, grouped=grouped)
    return known[grouped]


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A question to a worker: decisions for a plan whose `free` nodes are chosen anew; None where that changes nothing.

    choice     int64[nodes]: the incumbent
    free       int64[n]: nodes, which are the first n of `problem`
    weights    of the plan's problem, for decoding
    """

    problem: PairwiseProblem
    choice: np.ndarray
    free: np.ndarray
    weights: Weights
    grouped: bool
    seed: int

    def answer(self, task: SearchTask) -> Decisions | None:
        """Solves and decodes."""
        inside = np.concatenate([self.choice[self.free], np.zeros(self.problem.nodes - len(self.free), np.int64)])
        solved = solve(self.problem, seconds=SECONDS, start=inside, seed=self.seed)
        if solved.choice is None or (solved.choice == inside).all():
            return None
        chosen = self.choice.copy()
        chosen[self.free] = solved.choice[: len(self.free)]
        nodes = model_of(task, grouped=self.grouped).nodes
        return decode(task, Wanted.of(nodes, chosen.tolist()), self.weights)


def grown(problem: PairwiseProblem, root: int, most: int, random: np.random.Generator) -> np.ndarray:
    """int64[n]: up to `most` nodes, from `root` along edges, near ones first."""
    around: list[list[int]] = [[] for _ in range(problem.nodes)]
    for u, v in problem.edge_nodes.tolist():
        around[u].append(v)
        around[v].append(u)
    found, seen = [root], {root}
    for node in found:
        for i in random.permutation(len(around[node])).tolist():
            other = around[node][i]
            if len(found) < most and other not in seen:
                seen.add(other)
                found.append(other)
    return np.array(sorted(found), np.int64)


def restricted(problem: PairwiseProblem, choice: np.ndarray, free: np.ndarray) -> PairwiseProblem:
    """The problem of some nodes, the others held at their choices: nodes for what these hold in memory come last."""
    place = np.full(problem.nodes, -1)
    place[free] = np.arange(len(free))
    first = problem.strategy_start
    costs = [problem.cost[first[i] : first[i + 1]].copy() for i in free.tolist()]
    edges: list[tuple[int, int, np.ndarray]] = []
    for edge, (u, v) in enumerate(problem.edge_nodes.tolist()):
        if place[u] >= 0 and place[v] >= 0:
            edges.append((int(place[u]), int(place[v]), problem.matrix(edge)))
        elif place[u] >= 0:
            costs[place[u]] += problem.matrix(edge)[:, choice[v]]
        elif place[v] >= 0:
            costs[place[v]] += problem.matrix(edge)[choice[u]]
    usages = [problem.usage[first[i] : first[i + 1]] for i in free.tolist()]
    intervals = problem.live[free].tolist()
    kept = replace(problem, usage=np.where(np.repeat(place < 0, problem.strategies), problem.usage, 0.0))
    times, held = kept.usage_at(choice)
    for time, amount in zip(times.tolist(), held.tolist(), strict=True):
        costs.append(np.zeros(1))
        usages.append(np.array([max(0.0, amount)]))
        intervals.append([time, time + 1])
    return PairwiseProblem.of(costs, usages, intervals, edges, problem.usage_limit)
