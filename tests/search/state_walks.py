"""States that random decisions of a search lead to, from a model's step without a schedule."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.evaluation.state_walk import Walk
from autopart.search.space.decision_space import DecisionSpace


def states_of_walks(model: str, mesh: ap.Mesh, walks: int, steps: int) -> Iterator[Partitioning]:
    """A state after each decision; it is the next one once that is asked for."""
    case = importlib.import_module(f"tests.models.{model}").case()
    step = ap.jit(case.step, mesh, [], donate_argnums=tuple(range(case.state)))
    start = Partitioning(step.lower(*case.args).traced.program, mesh)
    space = DecisionSpace.of(start, mesh.axis_names)
    walk = Walk(start.copy(), space)
    for seed in range(walks):
        random, decisions = np.random.default_rng(seed), ()
        for _ in range(steps):
            walk.go_to(decisions)
            options = space.options(walk.partitioning)
            if not options:
                break
            decisions = (*decisions, options[int(random.integers(len(options)))].decision)
            walk.go_to(decisions)
            yield walk.partitioning
