"""Is the result of a search never worse than the best named schedule, on every program in the tree, with any budget?"""

from __future__ import annotations

import pytest

import autopart as ap
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.search import Search, SearchResult, search
from experiments.search_quality.programs import MESHES as LARGE_MESHES
from experiments.search_quality.programs import programs
from tests.prompt import only
from tests.search.programs import MESH, PROGRAMS, program
from tests.search.steps import decoder

SMALL = ["perceptron", "inference", "two_towers"]
LARGE = sorted(programs())


def found(of: Program, mesh: ap.Mesh, budget: ap.Budget) -> SearchResult:
    return search(Partitioning(of, mesh), Search(axes=mesh.axis_names, budget=budget, cache=False))


def ranks(result: SearchResult) -> list[list[float]]:
    return [row["rank"] for row in result.report["baselines"]]


def check_all_budgets(of: Program, mesh: ap.Mesh) -> None:
    """With a second, an evaluation for each named schedule, 50 of them and 200."""
    in_a_second = found(of, mesh, ap.Budget(evaluations=None, seconds=1))
    count, bound = len(ranks(in_a_second)) - 1, min(ranks(in_a_second))
    results = [in_a_second, *(found(of, mesh, ap.Budget(n)) for n in (count, 50, 200) if n >= count)]
    for result in results:
        assert result.best is not None
        assert min(ranks(result)) == bound
        assert list(result.best.cost.rank[:2]) <= bound


@pytest.mark.parametrize("name", only(["inference"], SMALL))
def test_small_programs(name):
    check_all_budgets(program(name), MESH)


@pytest.mark.slow
def test_a_stack_of_layers():
    check_all_budgets(decoder(12), ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(SMALL)))
def test_other_small_programs(name):
    check_all_budgets(program(name), MESH)


@pytest.mark.slow
@pytest.mark.parametrize("device", LARGE_MESHES)
@pytest.mark.parametrize("name", LARGE)
def test_every_program_in_the_tree(name, device):
    check_all_budgets(programs()[name](), LARGE_MESHES[device])
