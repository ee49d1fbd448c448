"""Greedy and beam search: cost every next decision, keep the best few.

start -> 18 options costed -> BP        -> 31 options costed -> BP, MP -> ... until nothing is better
         keep 1 (greedy) or `width` (beam) of them
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.base.arguments import check_fields, whole
from autopart.search.evaluation.jobs import Job, State
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.problem import Problem


@register_optimizer("greedy")
@dataclass(frozen=True)
class Greedy:
    """Takes the decision that improves the objective most, until none does.

    max_options   options costed per step, those with the largest priors first
    depth          decisions at most
    """

    max_options: int = 64
    depth: int = 16

    def __post_init__(self) -> None:
        check_fields(self, max_options=whole(1), depth=whole(0))

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        descend(problem, 1, self.max_options, self.depth)


@register_optimizer("beam")
@dataclass(frozen=True)
class Beam:
    """Keeps the `width` best states of each depth, and goes on while the depth's best is not far from the best of all.

    patience   depths without a new best before it stops
    """

    width: int = 4
    max_options: int = 32
    depth: int = 16
    patience: int = 2

    def __post_init__(self) -> None:
        check_fields(self, width=whole(1), max_options=whole(1), depth=whole(0), patience=whole(1))

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        descend(problem, self.width, self.max_options, self.depth, self.patience)


def descend(problem: Problem, width: int, max_options: int, depth: int, patience: int = 1) -> None:
    """Beam search from the start; states that were seen before are not kept again."""
    frontier, seen = [problem.start], {problem.start.key}
    best, waited = problem.start.cost.score, 0
    for _ in range(depth):
        jobs = [Job((*s.decisions, o.decision)) for s in frontier for o in likeliest(s, max_options)]
        if not jobs:
            return
        found: list[State] = []
        for (state,) in problem.run(jobs):
            if state.key not in seen:
                seen.add(state.key)
                found.append(state)
        frontier = sorted(found, key=lambda s: s.cost.score)[:width]
        waited = 0 if frontier and frontier[0].cost.score < best else waited + 1
        if not frontier or waited >= patience:
            return
        best = min(best, frontier[0].cost.score)


def likeliest(state: State, count: int):
    """The options with the largest priors, in their own order."""
    kept = sorted(range(len(state.options)), key=lambda i: -state.options[i].prior)[:count]
    return [state.options[i] for i in sorted(kept)]
