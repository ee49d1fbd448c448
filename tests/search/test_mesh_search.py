"""Which meshes of a sweep are searched to the end, and what becomes of lost and interrupted searches?

first results   1.0, 1.5, 1.6      budget 100 each
second          0.9, 0.8           budget 400; the third is 1.5 times worse than the best, and given up
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from autopart.search.baselines import MOST
from autopart.search.budget import Budget
from autopart.search.execution.executor import Lost, WorkerError
from autopart.search.mesh_search import HOPELESS, MeshJob, search_meshes


@dataclass
class Told:
    """A session whose searches score what it was told, a row per wave, and end last to first."""

    scores: list[dict[int, Any]]
    waves: list[list[MeshJob]] = field(default_factory=list)

    def run(self, jobs: Sequence[MeshJob], deadline: float) -> Iterator[tuple[int, Any]]:
        self.waves.append(list(jobs))
        scores = self.scores[len(self.waves) - 1]
        for index in reversed(range(len(jobs))):
            score = scores[jobs[index].mesh]
            yield index, score if isinstance(score, Lost) else found(score)

    def close(self) -> None:
        """Nothing to close."""


def found(score: float | str) -> SimpleNamespace:
    if score == "interrupted":
        return SimpleNamespace(report={"stopped": "interrupted", "best": {"score": 1.0}})
    return SimpleNamespace(report={"stopped": "budget", "best": {"score": score}})


def outcome(results) -> list[tuple[float, bool]]:
    return [(result.report["best"]["score"], searched) for result, searched in results]


def test_meshes_much_worse_than_the_best_are_given_up():
    session = Told([{0: 1.0, 1: HOPELESS, 2: 1.01 * HOPELESS, 3: 9.0}, {0: 0.9, 1: 0.8}])
    results = search_meshes(session, 4, Budget(400))
    assert outcome(results) == [(0.9, True), (0.8, True), (1.01 * HOPELESS, False), (9.0, False)]
    first, second = session.waves
    assert first == [MeshJob(mesh, Budget(100)) for mesh in range(4)]
    assert second == [MeshJob(0, Budget(400)), MeshJob(1, Budget(400))]


def test_no_mesh_is_given_up_before_its_named_schedules_are_costed():
    session = Told([{0: 1.0, 1: 9.0}, {0: 1.0}])
    assert outcome(search_meshes(session, 2, Budget(100))) == [(1.0, True), (9.0, False)]
    assert session.waves[0][1].budget == Budget(MOST)


def test_a_budget_for_the_named_schedules_alone_is_spent_on_each_mesh_at_once():
    session = Told([{0: 1.0, 1: 9.0}])
    assert outcome(search_meshes(session, 2, Budget(60))) == [(1.0, True), (9.0, True)]
    assert len(session.waves) == 1


def test_seconds_are_shared_as_evaluations_are():
    session = Told([{0: 1.0}, {0: 1.0}])
    search_meshes(session, 1, Budget(None, 8.0))
    assert [wave[0].budget for wave in session.waves] == [Budget(None, 2.0), Budget(None, 8.0)]


def test_a_lost_search_is_an_error_that_names_the_mesh():
    with pytest.raises(WorkerError, match=r"mesh 1 cannot be searched[\s\S]*out of memory"):
        search_meshes(Told([{0: 1.0, 1: Lost("out of memory")}]), 2, Budget(60))


def test_an_interrupted_search_interrupts_the_sweep():
    with pytest.raises(KeyboardInterrupt):
        search_meshes(Told([{0: 1.0, 1: "interrupted"}]), 2, Budget(60))
