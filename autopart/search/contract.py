"""What every optimizer promises, as tests that anybody can run on theirs.

    from autopart.search.contract import OptimizerContract

    class TestMine(OptimizerContract):
        optimizer = Mine()

The problem is a training step of two matrices on {a: 4, b: 2}: small enough to search in a second, and large enough
that the best of it is neither nothing nor everything.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from autopart.core.doors.jax_internals import parse_module
from autopart.core.importer.replay import import_module
from autopart.core.mesh import Mesh
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.budget import Budget
from autopart.search.evaluation.evaluator import Evaluator, SearchTask
from autopart.search.evaluation.jobs import Job, Result
from autopart.search.execution.executor import Session
from autopart.search.search import Search, SearchResult, search

MESH = Mesh({"a": 4, "b": 2}, device="tpu_v3")

ENOUGH = Budget(120)
"""Evaluations in which an optimizer should find something."""

TWO_MATRICES = """
module {
  func.func public @main(%w1: tensor<1024x4096xf32>, %w2: tensor<4096x1024xf32>, %x: tensor<4096x1024xf32>)
      -> (tensor<1024x4096xf32>, tensor<4096x1024xf32>) {
    %h = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0]
        : (tensor<4096x1024xf32>, tensor<1024x4096xf32>) -> tensor<4096x4096xf32>
    %t = stablehlo.tanh %h : tensor<4096x4096xf32>
    %y = stablehlo.dot_general %t, %w2, contracting_dims = [1] x [0]
        : (tensor<4096x4096xf32>, tensor<4096x1024xf32>) -> tensor<4096x1024xf32>
    %dw2 = stablehlo.dot_general %t, %y, contracting_dims = [0] x [0]
        : (tensor<4096x4096xf32>, tensor<4096x1024xf32>) -> tensor<4096x1024xf32>
    %dt = stablehlo.dot_general %y, %w2, contracting_dims = [1] x [1]
        : (tensor<4096x1024xf32>, tensor<4096x1024xf32>) -> tensor<4096x4096xf32>
    %dh = stablehlo.multiply %dt, %t : tensor<4096x4096xf32>
    %dw1 = stablehlo.dot_general %x, %dh, contracting_dims = [0] x [0]
        : (tensor<4096x1024xf32>, tensor<4096x4096xf32>) -> tensor<1024x4096xf32>
    %w1_next = stablehlo.subtract %w1, %dw1 : tensor<1024x4096xf32>
    %w2_next = stablehlo.subtract %w2, %dw2 : tensor<4096x1024xf32>
    return %w1_next, %w2_next : tensor<1024x4096xf32>, tensor<4096x1024xf32>
  }
}
"""


@functools.cache
def two_matrices() -> Program:
    """The program of `TWO_MATRICES`; the outputs are the matrices' next values."""
    module = parse_module(TWO_MATRICES)
    return import_module(module, argument_names=["params/w1", "params/w2", "x"], ties={0: 0, 1: 1})


def run(optimizer: Any, budget: Budget = ENOUGH, seed: int = 0, **settings: Any) -> SearchResult:
    """A search on the small problem."""
    wanted = Search(axes=("a", "b"), optimizer=optimizer, budget=budget, seed=seed, cache=False, **settings)
    return search(Partitioning(two_matrices(), MESH), wanted)


@dataclass(frozen=True)
class OutOfOrder:
    """Several evaluators that return the results of a wave last to first, as workers might."""

    workers: int = 3

    def start(self, task: SearchTask) -> Session:
        """See `Executor`."""
        return _OutOfOrderSession([Evaluator(pickle.loads(task.pickled())) for _ in range(self.workers)])


class _OutOfOrderSession:
    def __init__(self, evaluators: list[Evaluator]):
        self._evaluators = evaluators

    def run(self, jobs: Sequence[Job], deadline: float) -> Iterator[tuple[int, Result]]:
        for index in reversed(range(len(jobs))):
            yield index, self._evaluators[index % len(self._evaluators)].run(jobs[index])

    def close(self) -> None:
        pass


class OptimizerContract:
    """Subclass it in a test module and set `optimizer`."""

    optimizer: ClassVar[Any]

    def test_is_a_value(self) -> None:
        """Equal settings are equal, and its text tells it from others: it is part of the cache's key."""
        same = pickle.loads(pickle.dumps(self.optimizer))
        assert same == self.optimizer
        assert repr(same) == repr(self.optimizer)

    def test_result_is_no_worse_than_the_start(self) -> None:
        """Also where only a few evaluations are made."""
        found = run(self.optimizer, Budget(20))
        assert found.best is not None
        assert found.report["best"]["score"] <= found.report["start"]["score"]

    def test_evaluations_stay_within_the_budget(self) -> None:
        """To the last one."""
        for evaluations in (1, 7, 50):
            assert run(self.optimizer, Budget(evaluations)).report["evaluations"] <= evaluations

    def test_no_budget_leaves_everything_as_it_was(self) -> None:
        """Earlier tactics' decisions stand, and no others."""
        found = run(self.optimizer, Budget(0))
        assert not found.actions
        assert found.report["evaluations"] == 0

    def test_same_seed_gives_the_same_answer(self) -> None:
        """And the same number of evaluations."""
        first, second = run(self.optimizer, seed=3), run(self.optimizer, seed=3)
        assert first.actions == second.actions
        assert first.report["evaluations"] == second.report["evaluations"]

    def test_workers_are_no_part_of_the_answer(self) -> None:
        """Three workers that end in another order find what one finds."""
        assert run(self.optimizer, executor=OutOfOrder()).actions == run(self.optimizer).actions

    def test_a_budget_in_seconds_ends_the_search(self) -> None:
        """Even of an optimizer that would go on for ever."""
        found = run(self.optimizer, Budget(evaluations=None, seconds=0.3))
        assert found.report["stopped"] in ("budget", "done")
        assert found.report["seconds"] < 5

    def test_actions_lead_to_the_reported_state(self) -> None:
        """Replayed on a fresh partitioning, they cost what the search says."""
        found = run(self.optimizer)
        partitioning = Partitioning(two_matrices(), MESH)
        for action in found.actions:
            partitioning.apply(action)
        replayed = search(partitioning, Search(axes=("a", "b"), optimizer="greedy", budget=Budget(0), cache=False))
        assert replayed.report["start"]["step_s"] == found.report["best"]["step_s"]
        assert replayed.report["start"]["peak_bytes"] == found.report["best"]["peak_bytes"]
