"""Random search: rollouts from the start, drawn by prior. The yardstick that every other optimizer should beat."""

from __future__ import annotations

from dataclasses import dataclass

from autopart.base.arguments import check_fields, number, whole
from autopart.search.evaluation.jobs import Job
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem

MAX_IDLE_WAVES = 50
"""Waves without anything new before a small space counts as known."""


@register_optimizer("random")
@dataclass(frozen=True)
class RandomSearch:
    """Draws sequences of up to `depth` decisions; every state on the way is costed. A wave has `width` of them."""

    depth: int = 6
    width: int = 8
    stop: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, depth=whole(1), width=whole(1), stop=number(0, 1))

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        wave, idle, seen = 0, 0, {problem.start.key}
        while idle < MAX_IDLE_WAVES:
            seeds = [(problem.seed << 32) + wave * self.width + i for i in range(self.width)]
            results = problem.run([Job((), rollout=self.depth, seed=s, stop=self.stop) for s in seeds])
            found = {state.key for result in results for state in result}
            idle = 0 if found - seen else idle + 1
            seen |= found
            wave += 1
