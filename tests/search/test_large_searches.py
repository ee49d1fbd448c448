"""Does a search stay within memory over many evaluations, and does it work on the largest meshes?"""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget
from autopart.search.contract import run, two_matrices
from autopart.search.optimizers.annealing import Annealing
from autopart.search.search import Search, search

EIGHT_AXES = {"a": 4, "b": 4, "c": 4, "d": 4, "e": 2, "f": 2, "g": 2, "h": 2}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def growth_bytes(evaluations: int, monkeypatch, known: int) -> float:
    """Bytes per evaluation by which memory grows from a third of the search to its end."""
    from autopart.search.evaluation import evaluator
    from autopart.search.problem import Problem

    monkeypatch.setattr(evaluator, "MOST_KNOWN", known)
    seen: list[tuple[int, int]] = []
    noted = Problem.run

    def noting(problem, jobs):
        if problem.evaluations >= evaluations * (len(seen) + 1) / 3 and len(seen) < 2:
            seen.append((problem.evaluations, resident_bytes()))
        return noted(problem, jobs)

    monkeypatch.setattr(Problem, "run", noting)
    found = run(Annealing(steps=evaluations), Budget(evaluations), seed=1)
    seen.append((found.report["evaluations"], resident_bytes()))
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


@pytest.mark.slow
def test_memory_stays_flat_over_thousands_of_evaluations(monkeypatch):
    assert growth_bytes(4500, monkeypatch, known=256) < 1500


@pytest.mark.slow
def test_memory_stays_flat_over_a_hundred_thousand_evaluations(monkeypatch):
    assert growth_bytes(100_000, monkeypatch, known=4096) < 200


def test_what_an_evaluator_has_forgotten_costs_what_it_did(monkeypatch):
    from autopart.search.evaluation import evaluator

    expected = run("mcts", Budget(200))
    monkeypatch.setattr(evaluator, "MOST_KNOWN", 1)
    assert run("mcts", Budget(200)).report["history"] == expected.report["history"]


@pytest.mark.parametrize("sizes", [EIGHT_AXES, {"a": 64, "b": 64}], ids=str)
def test_eight_axes_and_four_thousand_devices_can_be_searched(sizes):
    mesh = ap.Mesh(sizes, device="tpu_v3")
    wanted = Search(axes=tuple(sizes), budget=Budget(60), cache=False)
    found = search(Partitioning(two_matrices(), mesh), wanted)
    assert found.report["best"]["score"] < found.report["start"]["score"]
