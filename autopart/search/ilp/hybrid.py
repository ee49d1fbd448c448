"""`ap.Hybrid`: plans by integer programs, then tree search and large neighbourhoods in turn, around one best state.

    bound, plans      as `ap.ILP`
    turn              waves of a tree that begins with the plan and the best named schedules; then parts of the best
                      state chosen anew by integer programs, `width` at a time, on the workers
    refinement        of the best state, once turns find nothing better or the last share of the budget begins

A tree finds what the additive model does not see, a neighbourhood changes many layers at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.arguments import check_fields, number, whole
from autopart.search.ilp.planning import Planner
from autopart.search.mcts.mcts import MCTS, SEEDS
from autopart.search.mcts.tree import Tree
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.optimizers.refine import refine
from autopart.search.problem import Problem


@register_optimizer("hybrid")
@dataclass(frozen=True)
class Hybrid:
    """Plans, then tree search and large neighbourhoods in turn; see `autopart.search.ilp` for the integer program.

    rounds       plans at most before the first turn
    waves        of the tree in a turn, 32 leaves each
    width        neighbourhoods at a time; part of the answer, unlike the number of workers
    patience     turns without a better state after which it refines
    seconds      of a plan's solver at a time, at most
    refinement   share of the budget for refining the best state
    """

    rounds: int = 2
    waves: int = 2
    width: int = 4
    patience: int = 3
    seconds: float = 10.0
    refinement: float = 0.3

    def __post_init__(self) -> None:
        check_fields(
            self,
            rounds=whole(1),
            waves=whole(0),
            width=whole(0),
            patience=whole(1),
            seconds=number(0),
            refinement=number(0, 1),
        )

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`. Raises `MeshError` where the mesh names no device to price with."""
        planner = Planner(problem, grouped=True, seconds=self.seconds)
        planner.bound()
        for _ in range(self.rounds):
            if not planner.round():
                break
        tree, random, idle = Tree(problem, MCTS()), np.random.default_rng(problem.seed), 0
        tree.seed([problem.best.decisions, *(decisions for _, decisions in problem.seeds[: SEEDS - 1])])
        while idle < self.patience and problem.share_spent < 1 - self.refinement:
            before = problem.best
            grew = [tree.wave() for _ in range(self.waves)]
            if self.width:
                planner.neighbourhoods(self.width, random)
            if not (any(grew) or self.width):
                break
            idle = idle + 1 if problem.best is before else 0
        refine(problem, problem.best)
