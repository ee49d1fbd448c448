"""MCTS: a tree search first, then refinement of the best, then recombination of what was climbed to; phase by phase.

    tree            from the best named schedules, until it idles or has had its share of the phase
    refinement      climbs from the tree's best state, which need not be better than what was climbed to before
    recombination   climbs from parts of good states put together, in turn with more of the tree

The order of everything is fixed by the seed: workers only make it faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autopart.base.arguments import FLAG, check_fields, number, whole
from autopart.search.mcts.recombination import Recombination
from autopart.search.mcts.tree import Tree
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision

SEEDS = 4
"""Schedules that the tree begins with, the best of those that were costed before: their decisions one by one."""

FIRST, GROWTH = 200, 5
"""Evaluations of the first phase, and how many times as many there are after the next one, whatever the budget is: so a
search begins as one with a smaller budget does, and ends no worse."""

TREE_AGAIN = 0.25
"""Chance that the tree has the next wave, once recombination has begun."""


@register_optimizer("mcts")
@dataclass(frozen=True)
class MCTS:
    """Monte Carlo tree search.

    seeded        begin the tree with the best of the schedules that were costed before: given ones and named ones
    width         leaves per wave; part of the answer, unlike the number of workers
    rollout       decisions drawn after each new leaf, by prior and by what they gained elsewhere
    exploration   weight of the priors against the rewards
    refinement    share of each phase for refining the best state, and for recombining good ones
    idle          new leaves without a better state after which it refines
    """

    seeded: bool = True
    width: int = 32
    rollout: int = 1
    exploration: float = 0.6
    refinement: float = 0.75
    idle: int = 96

    def __post_init__(self) -> None:
        check_fields(
            self,
            seeded=FLAG,
            width=whole(1),
            rollout=whole(0),
            exploration=number(0),
            refinement=number(0, 1),
            idle=whole(1),
        )

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        self.search_from(problem, [decisions for _, decisions in problem.seeds] if self.seeded else [])

    def search_from(self, problem: Problem, seeds: list[tuple[Decision, ...]]) -> None:
        """Begins with these schedules, the best first. It ends with the budget, or where everything was tried."""
        tree, random = Tree(problem, self), np.random.default_rng(problem.seed)
        tree.seed(seeds[:SEEDS])
        later = Recombination(problem, tree, seeds)
        for begin, end in phases():
            tree.idle, later.until = 0, end
            tree_ends = end - self.refinement * (end - begin)
            while problem.evaluations < tree_ends and tree.idle < self.idle and tree.wave():
                pass
            later.refine_from(tree.best)
            while problem.evaluations < end and not later.exhausted:
                if later.refines or random.random() >= TREE_AGAIN or not tree.wave():
                    later.wave()
            if later.exhausted:
                return


def phases() -> Iterator[tuple[int, int]]:
    """(begin, end) of each phase, in evaluations."""
    begin, end = 0, FIRST
    while True:
        yield begin, end
        begin, end = end, GROWTH * end
