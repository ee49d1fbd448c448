"""Refinement: better neighbours of a good sequence of decisions, until there is none.

BP, MP, Z3, sums   ->   without Z3            drop one
                   ->   BP, MP, Z3, sums, d   one more
                   ->   BP, MP, d, sums       one for another
                   ->   MP, BP, Z3, sums      in another order: earlier decisions win
                   ->   ..., Z3 of all but params/embedding      take a decision apart (ungroup)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

from autopart.search.evaluation.jobs import Job, State
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision, Option

Decisions = tuple[Decision, ...]

Worth = Callable[[Option], float]
"""What an option promises: of one more decision, those that promise most are tried first."""

Neighbours = Callable[[Problem, State, Worth], Iterator[Decisions]]

WAVE = 32
"""Neighbours that are costed at a time; the best of them is taken at once if it is better."""


def refine(problem: Problem, state: State, worth: Worth | None = None) -> State:
    """Hill climbing by rank from `state` over neighbours of every kind; returns a state that none of them betters."""
    return climb(problem, state, ALL, worth)


def climb(
    problem: Problem,
    state: State,
    kinds: tuple[Neighbours, ...],
    worth: Worth | None = None,
    *,
    wave: int = WAVE,
    patience: float = math.inf,
    tried: set[Decisions] | None = None,
    until: float = math.inf,
) -> State:
    """Hill climbing by rank over some kinds of neighbours, a step once `wave` of them hold a better one.

    It ends where no neighbour is better, or the first `patience` of them are not, or `until` states are costed. What
    was `tried` is left out.
    """
    tried = set() if tried is None else tried
    tried.add(state.decisions)
    while True:
        better = _better_neighbour(problem, state, kinds, worth or by_prior, wave, patience, tried, until)
        if better is None:
            return state
        state = better


def by_prior(option: Option) -> float:
    """Where nothing was learned yet."""
    return option.prior


def _better_neighbour(
    problem: Problem,
    state: State,
    kinds: tuple[Neighbours, ...],
    worth: Worth,
    wave: int,
    patience: float,
    tried: set[Decisions],
    until: float,
) -> State | None:
    """The best of the first wave that has a better one; the cheaper kinds come first."""
    asked = 0
    for kind in kinds:
        untried = (decisions for decisions in kind(problem, state, worth) if decisions not in tried)
        while asked < patience and problem.evaluations < until:
            jobs = [Job(decisions) for decisions in itertools.islice(untried, wave)]
            if not jobs:
                break
            tried.update(job.decisions for job in jobs)
            asked += len(jobs)
            best = min((found for (found,) in problem.run(jobs)), key=lambda found: found.cost.rank)
            if best.cost.rank < state.cost.rank:
                return best
    return None


def dropped(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """All decisions but one."""
    for i in range(len(state.decisions)):
        yield (*state.decisions[:i], *state.decisions[i + 1 :])


def added(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """One decision more, of those that the state offers."""
    for option in sorted(state.options, key=worth, reverse=True):
        yield (*state.decisions, option.decision)


def added_over_axes(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """One decision more, over several axes at once: over one alone it may save less than it moves."""
    offered = [o.decision for o in sorted(state.options, key=worth, reverse=True) if o.decision.axis]
    alike = dict.fromkeys(d._replace(axis="") for d in offered)
    axes = problem.task.space.axes
    for count in range(len(axes), 1, -1):
        for decision in alike:
            for over in itertools.combinations(axes, count):
                yield (*state.decisions, *(decision._replace(axis=axis) for axis in over))


def prepended(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """One decision more, of those that the start offers, before all others."""
    for option in sorted(problem.start.options, key=worth, reverse=True):
        if option.decision not in state.decisions:
            yield (option.decision, *state.decisions)


def exchanged(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """Each decision replaced by another that the start offers on the same axis."""
    for i, old in enumerate(state.decisions):
        for option in problem.start.options:
            if option.decision.axis == old.axis and option.decision not in state.decisions:
                yield (*state.decisions[:i], option.decision, *state.decisions[i + 1 :])


def reordered(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """Each decision moved before an earlier one."""
    d = state.decisions
    for i in range(len(d)):
        for j in range(i):
            yield (*d[:j], d[i], *d[j:i], *d[i + 1 :])


def refined(problem: Problem, state: State, worth: Worth) -> Iterator[Decisions]:
    """Each decision replaced by what its kind suggests: most of its parts, or itself after an exception."""
    d = state.decisions
    for i, old in enumerate(d):
        for instead in problem.task.space.refinements(old):
            yield (*d[:i], *instead, *d[i + 1 :])


ALL = (dropped, added, exchanged, reordered, refined, prepended, added_over_axes)
"""Every kind of neighbour, the cheaper kinds first."""

SINGLE = (added, dropped)
"""One decision more or less."""
