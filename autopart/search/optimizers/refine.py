"""Refinement: better neighbours of a good sequence of decisions, until there is none.

BP, MP, Z3, sums   ->   without Z3            drop one
                   ->   BP, MP, Z3, sums, d   one more
                   ->   MP, BP, Z3, sums      in another order: earlier decisions win
                   ->   ..., Z3 of all but params/embedding      take a role apart (ungroup)
"""

from __future__ import annotations

from collections.abc import Iterator

from autopart.search.jobs import Job, State
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision

MAX_PARTS = 4
"""A role is taken apart into its first and last parts only, where it has more: inner layers are alike."""

Sequence = tuple[Decision, ...]


def refine(problem: Problem, state: State) -> State:
    """Hill climbing by rank from `state`, all neighbours of a kind in one wave; returns the best found."""
    tried: set[Sequence] = {state.decisions}
    while True:
        better = _best_neighbour(problem, state, tried)
        if better is None:
            return state
        state = better


def _best_neighbour(problem: Problem, state: State, tried: set[Sequence]) -> State | None:
    """The best of the first kind of neighbours that has a better one; the cheaper kinds come first."""
    for kind in (_dropped, _added, _exchanged, _reordered, _ungrouped):
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


def _dropped(problem: Problem, state: State) -> Iterator[Sequence]:
    for i in range(len(state.decisions)):
        yield (*state.decisions[:i], *state.decisions[i + 1 :])


def _added(problem: Problem, state: State) -> Iterator[Sequence]:
    for option in state.options:
        yield (*state.decisions, option.decision)


def _exchanged(problem: Problem, state: State) -> Iterator[Sequence]:
    """Each decision replaced by another that the start offers on the same axis."""
    for i, old in enumerate(state.decisions):
        for option in problem.start.options:
            if option.decision.axis == old.axis and option.decision not in state.decisions:
                yield (*state.decisions[:i], option.decision, *state.decisions[i + 1 :])


def _reordered(problem: Problem, state: State) -> Iterator[Sequence]:
    d = state.decisions
    for i in range(len(d)):
        for j in range(i):
            yield (*d[:j], d[i], *d[j:i], *d[i + 1 :])


def _ungrouped(problem: Problem, state: State) -> Iterator[Sequence]:
    """Each role's decision without one of its parts, or, of "stored", with one role kept whole before it."""
    d, space = state.decisions, problem.task.space
    for i, old in enumerate(d):
        parts = space.parts(old)
        for part in parts[: MAX_PARTS // 2] + parts[MAX_PARTS // 2 :][-MAX_PARTS // 2 :]:
            yield (*d[:i], *(p for p in parts if p != part), *d[i + 1 :])
        if old.kind in ("stored", "slots"):
            for role in dict.fromkeys(space.roles.of[space.updated].tolist()):
                yield (*d[:i], Decision("keep", role, -1, old.axis), *d[i:])
