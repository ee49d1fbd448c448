"""Simulated annealing over sequences of decisions: add one, drop one, or exchange one.

[BP, MP] -> [BP, MP, Z3]    5 % faster: taken
         -> [MP]            9 times slower: taken with probability exp(-log(9) / temperature)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autopart.base.arguments import check_fields, number, whole
from autopart.search.evaluation.evaluator import draw
from autopart.search.evaluation.jobs import Job, State
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem


@register_optimizer("annealing")
@dataclass(frozen=True)
class Annealing:
    """Proposes `width` neighbours at a time and moves to the first that is accepted.

    The temperature falls from `hot` to `cold` geometrically over `steps` waves, or over the budget where that ends
    first; it measures the logarithm of the score.
    """

    steps: int = 200
    width: int = 8
    hot: float = 0.5
    cold: float = 0.01

    def __post_init__(self) -> None:
        check_fields(self, steps=whole(0), width=whole(1), hot=number(0, above=True), cold=number(0, above=True))

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        random = np.random.default_rng(problem.seed)
        here = problem.start
        for step in range(self.steps):
            cooled = max(step / max(1, self.steps - 1), problem.share_spent)
            temperature = self.hot * (self.cold / self.hot) ** cooled
            jobs = [Job(self._neighbour(random, here)) for _ in range(self.width)]
            for (state,) in problem.run(jobs):
                worse = math.log(max(state.cost.score, 1e-30)) - math.log(max(here.cost.score, 1e-30))
                if worse <= 0 or random.random() < math.exp(-worse / temperature):
                    here = state
                    break

    def _neighbour(self, random: np.random.Generator, here: State):
        decisions, move = here.decisions, random.random()
        added = draw(random, here.options, {}, 0.0)
        if decisions and (move < 0.25 or added is None):
            gone = int(random.integers(len(decisions)))
            return (*decisions[:gone], *decisions[gone + 1 :])
        if added is None:
            return decisions
        if decisions and move < 0.5:
            gone = int(random.integers(len(decisions)))
            return (*decisions[:gone], added, *decisions[gone + 1 :])
        return (*decisions, added)
