"""Recombination: parts of good states put together, and climbed from, where single steps from the best find nothing.

    BP, MP, Z3, sums              ->   BP, Z3        + d      part of a state that was climbed to
    BP, MP, Z3  and  BP, EP, sums ->   BP, Z3, EP    + d, e   parts of two
    FSDP(data)+Megatron(model)    ->   Megatron      + d      part of a named schedule

Up to two decisions are drawn after each, by prior and by what they gained elsewhere. One state of a wave, the best or
any, then climbs by single decisions. Where that ends may be worse than the best; it is kept, as a parent of others.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from autopart.search.evaluation.jobs import Job, State
from autopart.search.mcts.tree import Tree
from autopart.search.optimizers.refine import ALL, SINGLE, climb
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision, Option

Decisions = tuple[Decision, ...]

WAVE = 16
"""States that are made at a time, of which one climbs; and neighbours that a climb costs at a time."""

PATIENCE = 64
"""Neighbours that a climb costs before it gives up; of a new best state all are costed."""

PARENTS = 8
"""States, and named schedules, whose parts are used."""

KEPT = 0.6
"""Chance of each of a parent's decisions to be kept."""

DRAWN = 2
"""Decisions drawn after a parent's, at most."""

STALE = 16
"""Waves in a row that find no state to climb from, after which everything was tried."""


class Recombination:
    """What was climbed to, from the best state of a tree on.

    parents    where climbs ended, the best first
    until      states that are costed when a refinement is put off
    """

    def __init__(self, problem: Problem, tree: Tree, seeds: list[Decisions]):
        self._problem, self._tree = problem, tree
        self._random = np.random.default_rng(problem.seed)
        self._seeds: list[Decisions] = [*seeds[:PARENTS], ()]
        self.parents, self.until = [problem.best], math.inf
        self._refined: State | None = None
        self._under_way: list[tuple[State, set[Decisions]]] = []
        self._neighbours: set[Decisions] = set()
        self._climbed: set[int] = set()
        self._stale = 0

    @property
    def exhausted(self) -> bool:
        """True where new states are no longer found."""
        return self._stale >= STALE

    @property
    def refines(self) -> bool:
        """True where the next wave refines."""
        return bool(self._under_way) or self._refined is not self._problem.best

    def refine_from(self, state: State) -> None:
        """Has waves refine this state next, which need not be the best, before what was put off."""
        if state.key not in self._climbed:
            self._climbed.add(state.key)
            self._under_way.append((state, set()))

    def wave(self) -> None:
        """Refines, also the best state if it is new; else makes states of the parents, and climbs from one of them."""
        if self.refines:
            self._refine(*(self._under_way.pop() if self._under_way else (self._problem.best, self._neighbours)))
            return
        start = self._start()
        if start is None:
            self._stale += 1
            return
        self._stale = 0
        self._climbed.add(start.key)
        if not self.refines:
            self._keep(climb(self._problem, start, SINGLE, self._promise, wave=WAVE, patience=PATIENCE))

    def _refine(self, state: State, tried: set[Decisions]) -> None:
        """Climbs from a state in every direction; `tried` are the neighbours that were costed before it was put off.

        No neighbour that was ever costed is better than the best state.
        """
        found = climb(self._problem, state, ALL, self._promise, tried=tried, until=self.until)
        self._neighbours |= tried
        if self._problem.evaluations >= self.until:
            self._under_way.append((found, tried))
            return
        self._keep(found)
        if found is self._problem.best:
            self._refined = found

    def _start(self) -> State | None:
        """A state that was not climbed from: the best of a wave, or any."""
        bias, number = self._tree.gains.bias(), self._random.integers
        rollouts = [(int(number(DRAWN + 1)), int(number(2**31))) for _ in range(WAVE)]
        jobs = [Job(self._part(), rollout=drawn, seed=seed, bias=bias) for drawn, seed in rollouts]
        fresh: list[State] = []
        for states in self._problem.run(jobs):
            for before, after in itertools.pairwise(states):
                self._tree.learn(before, after)
            fresh += [state for state in states if state.key not in self._climbed]
        if not fresh:
            return None
        if self._random.random() < 0.5:
            return min(fresh, key=lambda state: state.cost.rank)
        return fresh[int(self._random.integers(len(fresh)))]

    def _part(self) -> Decisions:
        """Some decisions of a parent, of two, or of a named schedule, in their order."""
        kind = self._random.random()
        if kind < 0.4:
            return self._some_of(self._one_of([state.decisions for state in self.parents]))
        if kind < 0.6:
            both = [self._some_of(self._one_of([state.decisions for state in self.parents])) for _ in range(2)]
            return tuple(dict.fromkeys(itertools.chain(*both)))
        return self._some_of(self._one_of(self._seeds))

    def _one_of(self, sequences: list[Decisions]) -> Decisions:
        return sequences[int(self._random.integers(len(sequences)))]

    def _some_of(self, decisions: Decisions) -> Decisions:
        return tuple(d for d in decisions if self._random.random() < KEPT)

    def _promise(self, option: Option) -> float:
        return self._tree.gains.promise(option)

    def _keep(self, found: State) -> None:
        if found.key not in {state.key for state in self.parents}:
            self.parents = sorted([*self.parents, found], key=lambda state: state.cost.rank)[:PARENTS]
