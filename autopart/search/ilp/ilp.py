"""`ap.ILP`: the sharding problem as an integer program, solved, decoded into decisions, and priced anew.

    round       plan after the best state, at first the best baseline; again, after what was found
    search      as `ap.MCTS`, from the best state and named schedules, while the budget lasts: what a plan does not see
    bound       of the least costs

`answer_first.py` has their order, `planning.py` the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.base.arguments import FLAG, check_fields, number, whole
from autopart.search.ilp.answer_first import Turns
from autopart.search.ilp.planning import Planner
from autopart.search.mcts.mcts import MCTS
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem


@register_optimizer("ilp")
@dataclass(frozen=True)
class ILP:
    """An integer program over tile mappings and layouts; see `autopart.search.ilp` for the formulation.

    grouped    repeated layers are planned alike, as one; the bound is about all states either way
    rounds     plans at most, each after the state that the one before led to
    seconds    of a solver at a time, at most
    refined    search as `ap.MCTS` does, while the budget lasts
    """

    grouped: bool = True
    rounds: int = 3
    seconds: float = 10.0
    refined: bool = True

    def __post_init__(self) -> None:
        check_fields(self, grouped=FLAG, rounds=whole(1), seconds=number(0), refined=FLAG)

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`. Raises `MeshError` where the mesh names no device to price with."""
        turns = self._turns(problem)
        with turns.around():
            if self.refined:
                MCTS().search_from(problem, turns.seeds)

    def bound_alone(self, problem: Problem) -> None:
        """See `FindsBound`. Raises `MeshError` where the mesh names no device to price with."""
        self._turns(problem).bound()

    def _turns(self, problem: Problem) -> Turns:
        return Turns(Planner(problem, grouped=self.grouped, seconds=self.seconds), self.rounds)
