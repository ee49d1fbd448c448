"""Do reductions keep the optimum, and does what they leave lead back to a choice of the same cost that fits?"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from autopart.pairwise import PairwiseProblem
from autopart.pairwise.network import network, used_over_time
from autopart.pairwise.reduction import reduced
from tests.pairwise.random_problems import optimum, random_problem
from tests.prompt import every

SEEDS = range(60)


def best_of_rest(state):
    """The least cost in what is left, plus offset, and the choice that it stands for in the whole problem."""
    rest = state.rest()
    net = network(rest, state.room)
    best, choice = math.inf, None
    for at in itertools.product(*(range(k) for k in rest.strategies)):
        chosen = np.array(at, np.int64)
        cost = rest.cost_of(chosen) + state.offset
        if cost < best and not (used_over_time(net, chosen) > state.room).any():
            best, choice = cost, state.restored(chosen)
    return best, choice


@pytest.mark.parametrize("tight", [None, 0.3, 0.7])
@pytest.mark.parametrize("seed", every(3, SEEDS))
def test_reduced_problem_has_the_same_optimum_and_leads_back_to_it(seed, tight):
    problem = random_problem(seed, tight=tight)
    state, true = reduced(problem), optimum(problem)
    if state.infeasible:
        assert true == math.inf
        return
    best, choice = best_of_rest(state)
    assert best == pytest.approx(true)
    if choice is not None:
        assert problem.cost_of(choice) == pytest.approx(true)
        assert problem.fits(choice)


def test_chain_without_limit_reduces_to_nothing():
    rng = np.random.default_rng(0)
    problem = PairwiseProblem.of(
        [rng.random(4) for _ in range(9)], edges=[(i, i + 1, rng.random((4, 4))) for i in range(8)]
    )
    state = reduced(problem)
    assert not len(state.nodes)
    assert problem.cost_of(state.restored(np.zeros(0, np.int64))) == pytest.approx(state.offset)


def test_ring_without_limit_reduces_to_nothing_by_parallel_edges():
    rng = np.random.default_rng(1)
    ends = [(i, (i + 1) % 6) for i in range(6)]
    problem = PairwiseProblem.of([rng.random(2) for _ in range(6)], edges=[(u, v, rng.random((2, 2))) for u, v in ends])
    state = reduced(problem)
    assert not len(state.nodes)
    assert state.offset == pytest.approx(optimum(problem))


def test_cheaper_strategy_that_uses_more_is_not_dominated():
    problem = PairwiseProblem.of([[1, 2], [1, 2]], [[9, 1], [9, 1]], [[0, 1], [0, 1]], usage_limit=10)
    assert len(reduced(problem).nodes) == 2


def test_times_that_cannot_exceed_the_limit_leave_no_rows():
    problem = PairwiseProblem.of([[1, 2]] * 3, [[5, 1]] * 3, [[0, 2], [4, 6], [8, 9]], usage_limit=5)
    assert not len(reduced(problem).times)


def test_all_pairs_forbidden_is_infeasible_and_says_which_node():
    problem = PairwiseProblem.of([[1, 2], [3, 4]], edges=[(0, 1, np.full((2, 2), np.inf))])
    assert "node 0" in reduced(problem).infeasible
