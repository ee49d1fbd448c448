"""Does a search begin as one with a smaller budget does, so that more evaluations never find less?"""

from __future__ import annotations

import functools

import pytest

import autopart as ap
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.jobs import Job
from autopart.search.execution.executor import Executor
from autopart.search.search import Search, SearchResult, search
from autopart.search.space.decisions import Decision
from tests.prompt import only, slow
from tests.search.programs import MESH, PROGRAMS, program
from tests.search.steps import decoder

LARGEST, SMALLER = 500, (1, 7, 45, 111, 200, 201, 330)
SOME = ["perceptron", "graph_attention", "two_towers"]


def found(of: Program, mesh: ap.Mesh, evaluations: int, seed: int, executor: str | Executor = "serial") -> SearchResult:
    wanted = Search(mesh.axis_names, budget=ap.Budget(evaluations), seed=seed, executor=executor, cache=False)
    return search(Partitioning(of, mesh), wanted)


def check_beginnings(of: Program, mesh: ap.Mesh, seed: int) -> None:
    """Each new best state, and when it was found, is that of the largest search; no evaluation is left."""
    largest = found(of, mesh, LARGEST, seed).report
    for evaluations in SMALLER:
        report = found(of, mesh, evaluations, seed).report
        assert report["evaluations"] == min(evaluations, largest["evaluations"])
        assert report["history"] == [row for row in largest["history"] if row[0] <= evaluations]


@pytest.mark.parametrize("seed", [slow(0), 3])
@pytest.mark.parametrize("name", only(["graph_attention"], SOME))
def test_small_programs(name, seed):
    check_beginnings(program(name), MESH, seed)


@pytest.mark.slow
def test_a_stack_of_layers():
    check_beginnings(decoder(12), ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3"), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(SOME)))
def test_other_small_programs(name):
    check_beginnings(program(name), MESH, seed=0)


@pytest.mark.slow
def test_by_two_processes():
    run = functools.partial(found, program("perceptron"), MESH, seed=0)
    largest, smaller = run(LARGEST).report, run(230, executor=ap.Processes(2)).report
    assert smaller["history"] == [row for row in largest["history"] if row[0] <= 230]


def test_the_beginning_of_a_job_costs_the_first_of_its_states():
    a, b, c = (Decision("tile_group", n, 0, "a") for n in range(3))
    job = Job((a, b, c), each=True, rollout=2, seed=5)
    assert [job.within(n).max_evaluations for n in range(1, 7)] == [1, 2, 3, 4, 5, 5]
    assert job.within(2) == Job((a, b), each=True, seed=5)
    assert job.within(4) == Job((a, b, c), each=True, rollout=1, seed=5)
    assert Job((a, b, c), rollout=2).within(1) == Job((a, b, c))
