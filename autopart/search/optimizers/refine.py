"""Refinement: better neighbours of a good sequence of decisions, until there is none.

BP, MP, Z3, sums   ->   without Z3            drop one
                   ->   BP, MP, Z3, sums, d   one more
                   ->   MP, BP, Z3, sums      in another order: earlier decisions win
                   ->   ..., Z3 of all but params/embedding      take a decision apart (ungroup)
"""

from __future__ import annotations

from collections.abc import Iterator

from autopart.search.jobs import Job, State
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision

Decisions = tuple[Decision, ...]


def refine(problem: Problem, state: State) -> State:
    """Hill climbing by rank from `state`, all neighbours of a kind in one wave; returns the best found."""
    tried: set[Decisions] = {state.decisions}
    while True:
        better = _best_neighbour(problem, state, tried)
        if better is None:
            return state
        state = better


def _best_neighbour(problem: Problem, state: State, tried: set[Decisions]) -> State | None:
    """The best of the first kind of neighbours that has a better one; the cheaper kinds come first."""
    for kind in (_dropped, _added, _exchanged, _reordered, _refined):
        jobs = []
        for decisions in kind(problem, state):
            if decisions not in tried:
                tried.add(decisions)
                jobs.append(Job(decisions))
        best = state
        for (found,) in problem.run(jobs):
            if found.cost.rank < best.cost.rank:
                best = found
        if best is not state:
            return best
    return None


def _dropped(problem: Problem, state: State) -> Iterator[Decisions]:
    for i in range(len(state.decisions)):
        yield (*state.decisions[:i], *state.decisions[i + 1 :])


def _added(problem: Problem, state: State) -> Iterator[Decisions]:
    for option in state.options:
        yield (*state.decisions, option.decision)


def _exchanged(problem: Problem, state: State) -> Iterator[Decisions]:
    """Each decision replaced by another that the start offers on the same axis."""
    for i, old in enumerate(state.decisions):
        for option in problem.start.options:
            if option.decision.axis == old.axis and option.decision not in state.decisions:
                yield (*state.decisions[:i], option.decision, *state.decisions[i + 1 :])


def _reordered(problem: Problem, state: State) -> Iterator[Decisions]:
    d = state.decisions
    for i in range(len(d)):
        for j in range(i):
            yield (*d[:j], d[i], *d[j:i], *d[i + 1 :])


def _refined(problem: Problem, state: State) -> Iterator[Decisions]:
    """Each decision replaced by what its kind suggests: most of its parts, or itself after an exception."""
    d = state.decisions
    for i, old in enumerate(d):
        for instead in problem.task.space.refinements(old):
            yield (*d[:i], *instead, *d[i + 1 :])
