"""Do the parts that uses pay of moves they may share never exceed the moves, and do they raise the bound?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from autopart.pairwise import PairwiseProblem, solve
from autopart.pairwise.network import finite_network
from autopart.pairwise.shared_costs import Shared, raise_parts
from autopart.search.ilp.every_op import every_op
from autopart.search.ilp.formulation import Move
from autopart.search.ilp.prices import moved_to
from autopart.search.ilp.sharding_model import Model
from autopart.search.ilp.shared_moves import share_moves
from tests.prompt import slow
from tests.search.test_ilp import model_of, task_of
from tests.search.test_ilp_least_costs import PROGRAMS, began


def paid_and_made(model: Model, choice: np.ndarray) -> tuple[float, float]:
    """Seconds of shared moves that a choice pays by the parts of its uses, and those of each move made once."""
    flow, paid, made = model.flow, 0.0, dict[tuple[int, tuple[int, ...]], float]()
    for move, trips in flow.moves.items():
        if move.sharing >= 0:
            waits, reads = choice[move.maker], choice[move.reader]
            source, target = flow.left(move)[waits], flow.read(move)[reads]
            paid += trips * flow.seconds(move, model.table, least=True)[waits, reads]
            once = float(flow.whole_seconds(move, model.table, least=True)[waits, reads])
            key = move.sharing, moved_to(source, target, move.stands)
            made[key] = max(made.get(key, 0.0), flow.sharing[move.sharing] * once)
    return paid, sum(made.values())


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", [slow("layer"), "messages", "scanned", "accumulated_gradients"])
def test_no_choice_pays_more_than_its_moves_each_once(name, grouped):
    model, random = model_of(task_of(began(*PROGRAMS[name], "tpu_v3")), grouped=grouped), np.random.default_rng(0)
    share_moves(model, 20.0)
    counts = model.least().strategies
    found = np.array([paid_and_made(model, random.integers(counts)) for _ in range(200)])
    assert (found[:, 0] <= found[:, 1] * (1 + 1e-9))[np.isfinite(found).all(axis=1)].all()


def test_parts_of_uses_that_may_share_a_move_add_up_to_one_at_most():
    model = model_of(task_of(began(*PROGRAMS["layer"], "tpu_v3")), grouped=True)
    share_moves(model, 20.0)
    flow, parts = model.flow, defaultdict[tuple[int, int, tuple[int, ...]], float](float)

    def largest(move: Move) -> dict[tuple[int, int, tuple[int, ...]], float]:
        weights = np.broadcast_to(flow.weights.get(move, 1.0), (len(flow.left(move)), len(flow.read(move))))
        found = defaultdict[tuple[int, int, tuple[int, ...]], float](float)
        for (s, k), weight in np.ndenumerate(weights):
            key = move.sharing, s, moved_to(flow.left(move)[s], flow.read(move)[k], move.stands)
            found[key] = max(found[key], weight * flow.moves[move] / flow.sharing[move.sharing])
        return found

    for move in flow.moves:
        if move.sharing >= 0:
            for key, part in largest(move).items():
                parts[key] += part
    assert parts
    assert max(parts.values()) <= 1 + 1e-9


def test_bound_rises_where_uses_want_unlike_labels():
    model = model_of(task_of(began(*PROGRAMS["layer"], "tpu_v3")))

    def bound() -> float:
        return solve(replace(every_op(model), usage_limit=None), seconds=20.0).bound

    before = bound()
    share_moves(model, 20.0)
    assert bound() > before * 1.001


def test_cost_that_two_edges_have_in_common_is_paid_in_full_by_each_where_they_want_unlike_kinds():
    half = [[0.0, 0.0], [1.5, 1.5]]
    problem = PairwiseProblem.of([[9.0, 0.0], [4.0, 0.0], [0.0, 4.0]], edges=[(0, 1, half), (0, 2, half)])
    assert solve(problem).bound == pytest.approx(3.0)
    net, edges = finite_network(problem)
    both, two, start = np.ones(2, np.bool_), np.full(2, 2), np.array([0, 4, 8])
    whole, kind = np.tile([0.0, 0.0, 3.0, 3.0], 2), np.tile([0, 1, 0, 1], 2)
    edge = np.array([edges[0, 1], edges[0, 2]])
    common = Shared(edge, both, two, start, whole, kind, np.full((2, 2, 2), 0.5))
    raise_parts(net, [common], np.inf)
    assert common.parts[:, 1].sum(axis=0) == pytest.approx(1.0)
    assert net.edge_cost.reshape(2, 2, 2)[:, 1] == pytest.approx(3.0 * common.parts[:, 1])
    assert solve(replace(problem, edge_cost=net.edge_cost)).bound == pytest.approx(6.0, rel=1e-3)
