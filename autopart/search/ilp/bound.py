"""The lower bound: no state that a search may reach scores less.

    ops               work on the matrix and the vector unit, and certain launches                `least_seconds.py`
    redistributions   the cheapest between two labels; a move that several uses share is paid once  `shared_moves.py`;
                      no latency of reductions that may be combined; as a lowering plans them where that decides
                      `decisive_moves.py`
    memory            arguments alone

It is about every choice of strategies and labels, also those that no decisions lead to, so about more than all states.

Each of these is part of what the simulator adds up, or less, and no part is counted twice. What the bound leaves out is
what the gap of an optimal plan consists of: bytes that kernels move, launches of light kernels, second gathers of what
is stored in parts, and the memory of what is computed.

The score of a state over its memory is `step_s * (1 + penalty * excess)`; step_s is at least the bound without memory,
B, so the score is at least `step_s + B * penalty * excess`, in which each byte of arguments has a price. A state that
fits scores at least the bound under the limit, any other at least the bound at that price.

All this is about collectives in turn. Where they run beside compute, a step is at least the longer of the two, and so
at least half of their sum (`Model.least_share`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from autopart.pairwise import PairwiseProblem, solve
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.ilp.every_op import every_op
from autopart.search.ilp.shared_moves import share_moves

if TYPE_CHECKING:
    from autopart.search.evaluation.evaluator import SearchTask
    from autopart.search.ilp.sharding_model import Model

SHARING = 0.2
"""Of the seconds for a bound, those in which moves are shared among uses, at most."""

ROUNDING = 1e-6
"""The share by which a solver's arithmetic may be off: taken off a bound."""


@dataclass(frozen=True)
class LowerBound:
    """score: no state scores less; notes: what the solver had to say."""

    score: float
    notes: tuple[str, ...] = ()


def why_no_bound(task: SearchTask) -> str:
    """Why nothing is known of the scores that a task's objective gives; empty if something is."""
    if task.cost_model is not None:
        return "the cost model is not the simulator"
    if not isinstance(task.objective, StepSeconds):
        return f"the objective {task.objective!r:.80} is not StepSeconds"
    return ""


def each_apart(model: Model) -> float:
    """A bound that takes no time: every op and value at its cheapest, whatever the others do. Layers may be grouped."""
    pairs = zip(model.trips(), model.least_once, strict=True)
    return (1 - ROUNDING) * sum(float(trips * once.min()) for trips, once in pairs)


def lower_bound(model: Model, objective: StepSeconds, seconds: float) -> LowerBound:
    """A bound on the score of every state, found in about so many seconds; layers of the model may be grouped."""
    began, notes = time.monotonic(), list[str]()
    share_moves(model, SHARING * seconds)
    least = every_op(model)
    seconds = max(0.0, seconds - (time.monotonic() - began))

    def bound(problem: PairwiseProblem, share: float) -> float:
        solved = solve(problem, seconds=share * seconds, only_bound=True)
        notes.extend(solved.notes)
        return math.inf if solved.status == "infeasible" else max(0.0, solved.bound * (1 - ROUNDING))

    limit = least.usage_limit
    assert limit is not None
    free = bound(replace(least, usage_limit=None), 0.5)
    if least.usage_of(_largest(least)) <= limit:
        return LowerBound(free, tuple(notes))
    price = objective.penalty * free / limit
    over = bound(replace(least, usage_limit=None, cost=least.cost + price * least.usage), 0.25) - price * limit
    return LowerBound(_over_memory(free, over, bound(least, 0.25)), tuple(notes))


def _over_memory(free: float, over: float, fitting: float) -> float:
    """The bound where arguments may exceed memory: states that do score at least `over`, all others `fitting`."""
    return max(free, min(fitting, max(free, over)))


def _largest(problem: PairwiseProblem) -> np.ndarray:
    """The strategy of each node that uses most."""
    first = problem.strategy_start
    return np.array([int(problem.usage[a:b].argmax()) for a, b in pairwise(first.tolist())])
