"""Does recombination leave a place that single steps do not, and does it end?"""

from __future__ import annotations

import contextlib

import pytest

import autopart as ap
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget, BudgetMeter, BudgetSpent
from autopart.search.contract import two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.execution.executor import Serial
from autopart.search.mcts.mcts import MCTS
from autopart.search.mcts.recombination import Recombination
from autopart.search.mcts.tree import Tree
from autopart.search.optimizers.exhaustive import Exhaustive
from autopart.search.problem import Problem
from autopart.search.space import DecisionSpace
from autopart.spmd.device_local import LoweringOptions
from tests.prompt import slow
from tests.search import programs


def problem_of(program: Program, mesh: ap.Mesh, evaluations: int) -> Problem:
    partitioning = Partitioning(program, mesh)
    space = DecisionSpace.of(partitioning, mesh.axis_names)
    task = SearchTask(partitioning, space, LoweringOptions(), None, StepSeconds())
    return Problem(task, Serial().start(task), BudgetMeter(Budget(evaluations)), seed=0)


def test_a_search_that_has_tried_everything_ends_and_has_found_the_best():
    found = []
    for optimizer in MCTS(seeded=False), Exhaustive(depth=3):
        problem = problem_of(two_matrices(), ap.Mesh({"a": 4}, device="tpu_v3"), 10**7)
        optimizer.search(problem)
        assert problem.evaluations < 10**5
        found.append(problem.best.cost.score)
    assert found[0] <= found[1]


def test_a_search_goes_on_from_the_start_where_nothing_given_is_better():
    problem = problem_of(two_matrices(), ap.Mesh({"a": 4}, device="tpu_v3"), 50)
    with contextlib.suppress(BudgetSpent):
        MCTS().search_from(problem, [()])
    assert problem.evaluations > 1


@pytest.mark.parametrize("name", ["perceptron", slow("graph_attention")])
def test_what_is_climbed_to_is_kept_once_the_best_first(name):
    problem = problem_of(programs.program(name), programs.MESH, 10**6)
    later = Recombination(problem, Tree(problem, MCTS()), [])
    first = problem.best
    for _ in range(12):
        later.wave()
    parents = later.parents
    assert len({state.key for state in parents}) == len(parents) > 1
    assert list(parents) == sorted(parents, key=lambda state: state.cost.rank)
    assert parents[0].cost.rank == problem.best.cost.rank <= first.cost.rank


def test_the_same_seed_finds_the_same():
    found = []
    for _ in range(2):
        problem = problem_of(programs.program("graph_attention"), programs.MESH, 300)
        with contextlib.suppress(BudgetSpent):
            MCTS().search(problem)
        found.append((problem.evaluations, problem.best))
    assert found[0] == found[1]
