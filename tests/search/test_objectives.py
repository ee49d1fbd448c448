"""What does a user see whose objective returns no number, in this process and on workers?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from autopart.search.budget import Budget
from autopart.search.contract import run
from autopart.search.evaluation.cost import Cost, ObjectiveError
from autopart.search.execution.processes import Processes
from tests.prompt import slow


@dataclass(frozen=True)
class Returns:
    value: Any

    def __call__(self, cost: Cost) -> Any:
        return self.value


@dataclass(frozen=True)
class Raises:
    def __call__(self, cost: Cost) -> float:
        raise ZeroDivisionError("in my objective")


@dataclass(frozen=True)
class NaNLater:
    """A number for the start, none for what is partitioned."""

    def __call__(self, cost: Cost) -> float:
        return math.nan if cost.actions else 1.0


@pytest.mark.parametrize("value", [None, math.nan, -math.inf, "3", b"3", (1.0,), 1j])
def test_an_objective_that_returns_no_number_is_named_with_what_it_returned(value):
    with pytest.raises(ObjectiveError, match="the objective Returns") as caught:
        run("greedy", objective=Returns(value))
    assert f"returned {value!r}" in str(caught.value)
    assert "Cost(step_s=" in caught.value.why


def test_an_objective_that_raises_is_named_with_its_line():
    with pytest.raises(ObjectiveError, match=r"Raises\(\) raised ZeroDivisionError.*in my objective") as caught:
        run("greedy", objective=Raises())
    assert "test_objectives.py:" in caught.value.why
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_objective_that_fails_in_the_midst_of_a_search_is_not_blamed_on_the_optimizer():
    with pytest.raises(ObjectiveError, match=r"NaNLater\(\) returned nan"):
        run("mcts", objective=NaNLater())


def test_a_function_is_named_by_its_name():
    def nothing(cost):
        return None

    with pytest.raises(ObjectiveError, match=r"the objective .*nothing returned None"):
        run("greedy", objective=nothing)


def test_infinity_means_never_and_other_numbers_are_numbers():
    import numpy as np

    assert run("greedy", Budget(20), objective=Returns(math.inf)).report["evaluations"] > 0
    assert run("greedy", Budget(20), objective=Returns(np.float32(2))).report["best"]["score"] == 2.0


@pytest.mark.parametrize("objective", [slow(Returns(None)), Raises(), slow(NaNLater())], ids=str)
def test_on_workers_the_error_is_the_same(objective):
    with pytest.raises(ObjectiveError) as here:
        run("mcts", objective=objective)
    with pytest.raises(ObjectiveError) as there:
        run("mcts", objective=objective, executor=Processes(1))
    assert there.value.what == here.value.what
