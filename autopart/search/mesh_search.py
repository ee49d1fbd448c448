"""Searching several meshes at once: each job is a whole search on one of them.

    rung 1   {batch:32} {batch:16, model:2} {batch:8, model:4} ... {model:32}     a quarter of the budget each, and
                                                                                  all named schedules
    rung 2   those within `HOPELESS` of the best so far                           the whole budget

Each mesh's search is the same whether others run or not; only whether it gets to the second rung depends on them.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.core.table.partitioning import Partitioning
from autopart.search.baselines import MOST
from autopart.search.budget import Budget
from autopart.search.execution.executor import Lost, Session, WorkerError
from autopart.search.search import Search, SearchResult, search

HOPELESS = 1.5
"""A mesh whose first result is so many times worse than the best first result is not searched further."""

FIRST_SHARE = 0.25
"""Share of the budget that every mesh gets."""


@dataclass(frozen=True)
class MeshJob:
    """Search mesh number `mesh` within `budget`."""

    mesh: int
    budget: Budget


@dataclass(frozen=True, eq=False)
class MeshTask:
    """Starting states, one per mesh, and how to search them."""

    starts: tuple[Partitioning, ...]
    wanted: Search

    def pickled(self, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
        """For other processes; the program, which the starts share, is in it once."""
        return dumps(self)

    def worker(self) -> MeshTask:
        """Itself: it keeps nothing between jobs."""
        return self

    def run(self, job: MeshJob) -> SearchResult:
        """A search on one mesh."""
        start = self.starts[job.mesh]
        axes = tuple(a for a in self.wanted.axes if start.mesh.shape[a] > 1)
        return search(start, dataclasses.replace(self.wanted, axes=axes, budget=job.budget))


def search_meshes(session: Session, count: int, budget: Budget) -> list[tuple[SearchResult, bool]]:
    """(result, whether it was searched to the end) per mesh, in order."""
    first = _run(session, [MeshJob(mesh, _first(budget)) for mesh in range(count)])
    scores = [_score(found) for found in first]
    hopeful = [mesh for mesh in range(count) if scores[mesh] <= HOPELESS * min(scores)]
    if _first(budget) == budget:
        return [(found, True) for found in first]
    second = dict(zip(hopeful, _run(session, [MeshJob(mesh, budget) for mesh in hopeful]), strict=True))
    return [(second.get(mesh, first[mesh]), mesh in second) for mesh in range(count)]


def _run(session: Session, jobs: Sequence[MeshJob]) -> list[SearchResult]:
    """Results in the order of the jobs. Raises `WorkerError` for a lost one, `KeyboardInterrupt` after Ctrl-C."""
    found: dict[int, SearchResult] = {}
    for index, result in session.run(jobs, float("inf")):
        if isinstance(result, Lost):
            raise WorkerError(f"mesh {jobs[index].mesh} cannot be searched", why=result.why)
        if result.report["stopped"] == "interrupted":
            raise KeyboardInterrupt
        found[index] = result
    return [found[i] for i in range(len(jobs))]


def _first(budget: Budget) -> Budget:
    """A share of the budget, but enough for the named schedules: no mesh is given up before those are costed."""
    whole = budget.evaluations
    evaluations = None if whole is None else min(whole, max(int(FIRST_SHARE * whole), MOST))
    return Budget(evaluations, None if budget.seconds is None else FIRST_SHARE * budget.seconds)


def _score(found: SearchResult) -> float:
    return float(found.report["best"]["score"])
