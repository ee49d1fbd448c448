"""Does a problem whose nodes determine each other keep its choices, their costs and what they use, as fewer nodes?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autopart.pairwise import PairwiseProblem, solve
from autopart.pairwise.ascent import Ascent
from autopart.pairwise.contraction import contracted
from autopart.pairwise.network import cost_of, network, used_over_time
from tests.pairwise.random_problems import optimum

TIMES = 6


def tied(seed: int, nodes: int = 6, most: int = 3) -> PairwiseProblem:
    """A ring and chords of nodes with equally many strategies; most edges leave each strategy one partner."""
    random = np.random.default_rng(seed)
    ends = [(i, (i + 1) % nodes) for i in range(nodes)] + [(0, nodes // 2)]
    edges = []
    for u, v in ends:
        matrix = random.integers(0, 9, (most, most)).astype(float)
        if random.random() < 0.6:
            matrix[random.permutation(most)[:, None] != np.arange(most)] = np.inf
        edges.append((min(u, v), max(u, v), matrix if u < v else matrix.T))
    begin = random.integers(0, TIMES, nodes)
    live = np.stack([begin, begin + random.integers(1, 3, nodes)], 1)
    costs, usages = random.integers(0, 9, (nodes, most)), random.integers(0, 5, (nodes, most))
    return PairwiseProblem.of(list(costs), list(usages), live, edges, usage_limit=float(random.integers(5, 10)))


def room_of(problem: PairwiseProblem) -> np.ndarray:
    return np.full(TIMES + 3, problem.usage_limit)


@pytest.mark.parametrize("seed", range(8))
def test_choices_of_fewer_nodes_cost_and_use_the_same_and_none_that_is_allowed_is_lost(seed):
    problem, room = tied(seed), room_of(tied(seed))
    found, whole = contracted(problem, room), network(problem, room)
    allowed = {c for c in itertools.product(range(3), repeat=problem.nodes) if np.isfinite(problem.cost_of(c))}
    if found is None:
        assert not allowed
        return
    kept = set()
    for few in itertools.product(*map(range, np.diff(found.net.start).tolist())):
        choice = found.expanded(np.array(few))
        kept.add(tuple(choice.tolist()))
        assert cost_of(found.net, np.array(few)) == pytest.approx(problem.cost_of(choice))
        assert np.allclose(used_over_time(found.net, np.array(few)), used_over_time(whole, choice))
        assert found.narrowed(choice).tolist() == list(few)
    assert allowed <= kept


@pytest.mark.parametrize("seed", range(8))
def test_bound_of_fewer_nodes_is_never_above_the_optimum(seed):
    problem = tied(seed)
    if (found := contracted(problem, room_of(problem))) is not None:
        ascent = Ascent(found.net)
        ascent.climb(60)
        assert ascent.bound <= optimum(problem) + 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_answer_is_the_optimum_that_enumeration_finds(seed):
    problem = tied(seed)
    assert solve(problem, 20).cost == pytest.approx(optimum(problem))


def test_ring_of_equal_layouts_is_one_node():
    equal = np.where(np.eye(3, dtype=bool), 0.0, np.inf)
    ring = [(0, 1, equal), (1, 2, equal), (2, 3, equal), (0, 3, equal)]
    problem = PairwiseProblem.of([[1, 2, 3]] * 4, [[3, 2, 1]] * 4, [[0, 2], [1, 3], [0, 2], [4, 5]], ring, 4)
    found = contracted(problem, np.full(5, 4.0))
    assert len(found.net.start) == 2
    assert len(found.net.begin) == 3
    assert used_over_time(found.net, np.array([1])).tolist() == [4, 6, 2, 0, 2]
    assert solve(problem, 5).cost == 12
