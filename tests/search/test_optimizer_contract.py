"""Does every registered optimizer keep the promises of `autopart.search.contract`, and find what is there?"""

from __future__ import annotations

import pytest

from autopart.search.budget import Budget
from autopart.search.contract import OptimizerContract, run
from autopart.search.mcts.mcts import MCTS
from autopart.search.optimizers.exhaustive import Exhaustive
from autopart.search.optimizers.optimizer import optimizers

for name, make in optimizers().items():
    title = f"Test{name.title()}"
    globals()[title] = type(title, (OptimizerContract,), {"optimizer": make()})


class TestUnseededMcts(OptimizerContract):
    optimizer = MCTS(seeded=False)


@pytest.fixture(scope="module")
def optimum() -> float:
    return run(Exhaustive(depth=3), Budget(20_000)).report["best"]["score"]


@pytest.mark.parametrize("optimizer", ["mcts", MCTS(seeded=False), "beam"], ids=str)
def test_search_finds_what_exhaustion_finds(optimizer, optimum):
    assert run(optimizer, Budget(400)).report["best"]["score"] <= optimum * (1 + 1e-9)


@pytest.mark.parametrize("optimizer", ["annealing", "random"])
def test_chance_comes_within_a_percent(optimizer, optimum):
    assert run(optimizer, Budget(400)).report["best"]["score"] <= optimum * 1.01


def test_greedy_is_better_than_doing_nothing():
    report = run("greedy").report
    assert report["best"]["score"] < 0.5 * report["start"]["score"]
