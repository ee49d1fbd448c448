"""An optimizer: the best named schedule, and from there the best next decision until none is better."""

from dataclasses import dataclass

import autopart as ap

TRIED: list[str] = []
"""Labels of the schedules that searches have started from."""


@ap.register_optimizer("acme_climber")
@dataclass(frozen=True)
class Climber:
    """Climbs at most `steps` steps."""

    steps: int = 4

    def search(self, problem: ap.Problem) -> None:
        """See `ap.Optimizer`."""
        TRIED.extend(label for label, _ in problem.seeds)
        problem.run([ap.Job(decisions) for _, decisions in problem.seeds])
        for _ in range(self.steps):
            here = problem.best
            problem.run([ap.Job((*here.decisions, option.decision)) for option in here.options])
            if problem.best == here:
                return
