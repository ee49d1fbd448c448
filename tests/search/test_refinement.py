"""Which neighbours does refinement try, and where does it stop?"""

from __future__ import annotations

import pytest

from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget, BudgetMeter
from autopart.search.contract import MESH, two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.evaluation.evaluator import SearchTask
from autopart.search.evaluation.jobs import Job
from autopart.search.execution.executor import Serial
from autopart.search.optimizers import refine as refinement
from autopart.search.optimizers.refine import SINGLE, by_prior, climb, refine
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
    assert set(refinement.dropped(problem, state_after(problem, a, b), by_prior)) == {(a,), (b,)}


def test_added_appends_each_option_of_the_state(problem):
    a = offered(problem, "a")[0]
    state = state_after(problem, a)
    likeliest = sorted(state.options, key=by_prior, reverse=True)
    assert list(refinement.added(problem, state, by_prior)) == [(a, o.decision) for o in likeliest]


def test_added_over_axes_appends_an_option_over_both_axes(problem):
    state = state_after(problem)
    found = list(refinement.added_over_axes(problem, state, by_prior))
    anywhere = {o.decision._replace(axis="") for o in state.options}
    assert {first._replace(axis="") for first, _ in found} == anywhere
    assert len(set(found)) == len(found)
    for first, second in found:
        assert (first.axis, second.axis) == ("a", "b")
        assert first._replace(axis="") == second._replace(axis="")


def test_prepended_puts_what_the_start_offers_in_front(problem):
    a, b = offered(problem, "a")[0], offered(problem, "b")[0]
    likeliest = sorted(problem.start.options, key=by_prior, reverse=True)
    found = list(refinement.prepended(problem, state_after(problem, a, b), by_prior))
    assert found == [(o.decision, a, b) for o in likeliest if o.decision not in (a, b)]


def test_exchanged_takes_another_decision_about_the_same_axis(problem):
    a, others = offered(problem, "a")[0], offered(problem, "a")[1:]
    assert list(refinement.exchanged(problem, state_after(problem, a), by_prior)) == [(other,) for other in others]


def test_reordered_moves_one_decision_forward(problem):
    a, b, c = offered(problem, "a")[0], offered(problem, "b")[0], offered(problem, "b")[1]
    found = list(refinement.reordered(problem, state_after(problem, a, b, c), by_prior))
    assert found == [(b, a, c), (c, a, b), (a, c, b)]


def test_refined_asks_the_kind_of_each_decision(problem):
    zero, other = Decision("zero3", 0, -1, "a"), offered(problem, "b")[0]
    space = problem.task.space
    found = list(refinement.refined(problem, state_after(problem, other, zero), by_prior))
    assert found == [
        *((*instead, zero) for instead in space.refinements(other)),
        *((other, *instead) for instead in space.refinements(zero)),
    ]


def test_refinement_ends_where_no_neighbour_is_better(problem):
    found = refine(problem, problem.start)
    assert found.cost.rank < problem.start.cost.rank
    assert found == problem.best
    for neighbours in refinement.ALL:
        for (state,) in problem.run([Job(d) for d in neighbours(problem, found, by_prior)]):
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

    @property
    def evaluations(self) -> int:
        return self._inner.evaluations

    def run(self, jobs):
        self.waves.append([job.decisions for job in jobs])
        return self._inner.run(jobs)


def test_no_sequence_is_tried_twice(problem):
    recorded = Recorded(problem)
    refine(recorded, recorded.start)
    tried = [sequence for wave in recorded.waves for sequence in wave]
    assert len(tried) > 20
    assert len(set(tried)) == len(tried)


def test_the_first_wave_with_a_better_neighbour_ends_a_round(problem):
    """From nothing: nothing to drop, then one more; the best of that wave, with nothing left in, is the next start."""
    recorded = Recorded(problem)
    climb(recorded, recorded.start, SINGLE, wave=4)
    offered = sorted(problem.start.options, key=by_prior, reverse=True)
    assert recorded.waves[0] == [(o.decision,) for o in offered[:4]]
    best = min((state_after(problem, *d) for d in recorded.waves[0]), key=lambda state: state.cost.rank)
    assert best.cost.rank < problem.start.cost.rank
    assert [d[:1] for d in recorded.waves[1]] == [best.decisions] * 4


def test_a_climb_gives_up_after_so_many_neighbours(problem):
    best = refine(problem, problem.start)
    recorded = Recorded(problem)
    assert climb(recorded, best, SINGLE, wave=4, patience=8) is best
    assert [len(wave) for wave in recorded.waves] == [4, 4]
