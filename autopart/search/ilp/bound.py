"""The lower bound: no state that a search may reach scores less.

    matrix work       launch and flop of every matrix op, however often axes divide it
    vector work       of scatters and opaque kernels, into which a compiler joins nothing
    redistributions   the cheapest between two labels; a move that several uses share is paid once; no latency of
                      reductions that may be combined
    memory            arguments alone, each byte above the device's memory at the objective's penalty

Each of these is part of what the simulator adds up, or less, and no part is counted twice. Fusion makes kernels of
several ops, whose seconds are at least those of the matrix op in them. What the bound leaves out (elementwise kernels,
memory traffic) is what the gap of an optimal plan consists of.

The score of a state over its memory is `step_s * (1 + penalty * excess)`; step_s is at least the bound without memory,
B, so the score is at least `step_s + B * penalty * excess`, which is linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autopart.search.cost import StepSeconds
from autopart.search.ilp.integer_program import ChoiceProblem, integer_program
from autopart.search.ilp.solve import solve_program

if TYPE_CHECKING:
    from autopart.search.evaluator import SearchTask
    from autopart.search.ilp.model import Model

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


def lower_bound(model: Model, objective: StepSeconds, solver: str, seconds: float, *, relaxed: bool) -> LowerBound:
    """A bound on the score of every state, found in about so many seconds.

    relaxed    of the linear relaxation alone: weaker, and much faster
    """
    free = _bound(model.least(0.0), solver, seconds / 2, relaxed)
    limit = model.device.hbm_bytes
    least = model.least(max(0.0, free.score) * objective.penalty / limit)
    most = sum(float(n * b.max()) for n, b in zip(least.live[0], least.bytes, strict=True))
    if most <= limit or free.score <= 0:
        return free
    short = _bound(least, solver, seconds / 2, relaxed)
    return LowerBound(max(free.score, short.score), (*free.notes, *short.notes))


def _bound(problem: ChoiceProblem, solver: str, seconds: float, relaxed: bool) -> LowerBound:
    solved = solve_program(integer_program(problem), solver, seconds, relaxed=relaxed)
    score = solved.bound * (1 - ROUNDING) if math.isfinite(solved.bound) else 0.0
    return LowerBound(max(0.0, score), solved.notes)
