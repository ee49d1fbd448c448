"""Exhaustive search: every state that at most `depth` decisions reach, breadth first. For small spaces, and tests."""

from __future__ import annotations

from dataclasses import dataclass

from autopart.base.arguments import check_fields, whole
from autopart.search.evaluation.jobs import Job
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem


@register_optimizer("exhaustive")
@dataclass(frozen=True)
class Exhaustive:
    """Goes through all states, each once; in waves of `width`."""

    depth: int = 4
    width: int = 64

    def __post_init__(self) -> None:
        check_fields(self, depth=whole(0), width=whole(1))

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        frontier, seen = [problem.start], {problem.start.key}
        for _ in range(self.depth):
            jobs = [Job((*s.decisions, o.decision)) for s in frontier for o in s.options]
            frontier = []
            for first in range(0, len(jobs), self.width):
                for (state,) in problem.run(jobs[first : first + self.width]):
                    if state.key not in seen:
                        seen.add(state.key)
                        frontier.append(state)
