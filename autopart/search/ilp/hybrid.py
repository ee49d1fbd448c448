"""`ap.Hybrid`: as `ap.ILP`, and where its tree search finds nothing better, large neighbourhoods of the best state.

    search            as `ap.MCTS`
    in between        parts of the best state chosen anew by integer programs, `width` at a time, on the workers

A tree finds what the additive model does not see, a neighbourhood changes many layers at once. `answer_first.py` has
their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.base.arguments import check_fields, number, whole
from autopart.search.ilp.answer_first import Turns
from autopart.search.ilp.planning import Planner
from autopart.search.mcts.mcts import MCTS
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem


@register_optimizer("hybrid")
@dataclass(frozen=True)
class Hybrid:
    """Plans, tree search and large neighbourhoods in turn; see `autopart.search.ilp` for the integer program.

    rounds       plans at most
    width        neighbourhoods at a time; part of the answer, unlike the number of workers
    patience     waves without a better state after which parts of the best are chosen anew
    seconds      of a plan's solver at a time, at most
    """

    rounds: int = 2
    width: int = 4
    patience: int = 4
    seconds: float = 10.0

    def __post_init__(self) -> None:
        check_fields(self, rounds=whole(1), width=whole(0), patience=whole(1), seconds=number(0))

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`. Raises `MeshError` where the mesh names no device to price with."""
        turns = self._turns(problem)
        with turns.around():
            MCTS().search_from(problem, turns.seeds)

    def bound_alone(self, problem: Problem) -> None:
        """See `FindsBound`. Raises `MeshError` where the mesh names no device to price with."""
        self._turns(problem).bound()

    def _turns(self, problem: Problem) -> Turns:
        planner = Planner(problem, grouped=True, seconds=self.seconds)
        return Turns(planner, self.rounds, self.width, self.patience)
