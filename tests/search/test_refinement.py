"""Which neighbours does refinement try, and where does it stop?"""

from __future__ import annotations

import pytest

from autopart.core.partitioning import Partitioning
from autopart.search.budget import Budget, BudgetMeter
from autopart.search.contract import MESH, two_matrices
from autopart.search.cost import StepSeconds
from autopart.search.evaluator import SearchTask
from autopart.search.execution.executor import Serial
from autopart.search.jobs import Job
from autopart.search.optimizers import refine as refinement
from autopart.search.optimizers.refine import refine
from autopart.search.problem import Problem
from autopart.search.space import Decision, DecisionSpace
from autopart.spmd.device_local import LoweringOptions


@pytest.fixture
def problem() -> Problem:
    partitioning = Partitioning(two_matrices(), MESH)
    task = SearchTask(partitioning, DecisionSpace.of(partitioning, ("a", "b")), LoweringOptions(), None, StepSeconds())
    return Problem(task, Serial().start(task), BudgetMeter(Budget(500)), seed=0)


def state_after(problem: Problem, *decisions: Decision):
    return problem.run([Job(decisions)])[0][0]


def offered(problem: Problem, axis: str) -> list[Decision]:
    return [o.decision for o in problem.start.options if o.decision.axis == axis]


def test_dropped_leaves_out_one_decision(problem):
    a, b = offered(problem, "a")[0], offered(problem, "b")[0]
    assert set(refinement._dropped(problem, state_after(problem, a, b))) == {(a,), (b,)}


def test_added_appends_each_option_of_the_state(problem):
    a = offered(problem, "a")[0]
    state = state_after(problem, a)
    assert list(refinement._added(problem, state)) == [(a, o.decision) for o in state.options]


def test_exchanged_takes_another_decision_about_the_same_axis(problem):
    a, others = offered(problem, "a")[0], offered(problem, "a")[1:]
    assert list(refinement._exchanged(problem, state_after(problem, a))) == [(other,) for other in others]


def test_reordered_moves_one_decision_forward(problem):
    a, b, c = offered(problem, "a")[0], offered(problem, "b")[0], offered(problem, "b")[1]
    found = list(refinement._reordered(problem, state_after(problem, a, b, c)))
    assert found == [(b, a, c), (c, a, b), (a, c, b)]


def test_refined_asks_the_kind_of_each_decision(problem):
    zero, other = Decision("zero3", 0, -1, "a"), offered(problem, "b")[0]
    space = problem.task.space
    found = list(refinement._refined(problem, state_after(problem, other, zero)))
    assert found == [
        *((*instead, zero) for instead in space.refinements(other)),
        *((other, *instead) for instead in space.refinements(zero)),
    ]


def test_refinement_ends_where_no_neighbour_is_better(problem):
    found = refine(problem, problem.start)
    assert found.cost.rank < problem.start.cost.rank
    assert found == problem.best
    neighbours = [refinement._dropped, refinement._added, refinement._exchanged, refinement._reordered]
    for neighbour in [*neighbours, refinement._refined]:
        for (state,) in problem.run([Job(d) for d in neighbour(problem, found)]):
            assert state.cost.rank >= found.cost.rank


def test_a_useless_decision_is_dropped(problem):
    best = refine(problem, problem.start)
    worse = state_after(problem, *best.decisions, Decision("zero2", 0, -1, "a"), *best.decisions[:1])
    assert refine(problem, worse).cost.rank <= best.cost.rank


class Recorded:
    """A problem that notes the sequences it is asked for, wave by wave."""

    def __init__(self, inner: Problem):
        self.start, self.task, self._inner = inner.start, inner.task, inner
        self.waves: list[list[tuple[Decision, ...]]] = []

    def run(self, jobs):
        self.waves.append([job.decisions for job in jobs])
        return self._inner.run(jobs)


def test_no_sequence_is_tried_twice(problem):
    recorded = Recorded(problem)
    refine(recorded, recorded.start)
    tried = [sequence for wave in recorded.waves for sequence in wave]
    assert len(tried) > 20
    assert len(set(tried)) == len(tried)


def test_kinds_of_neighbours_are_tried_in_turn_and_the_first_with_a_better_one_ends_a_round(problem):
    """From nothing: nothing to drop, then one more; the best of those, with nothing left in, is the next start."""
    recorded = Recorded(problem)
    refine(recorded, recorded.start)
    dropped, added, after = recorded.waves[:3]
    assert dropped == []
    assert added == [(o.decision,) for o in problem.start.options]
    assert after == []
    best = min((state_after(problem, *d) for d in added), key=lambda state: state.cost.rank)
    assert recorded.waves[3] == [(*best.decisions, o.decision) for o in best.options]
