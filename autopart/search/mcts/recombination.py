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

from autopart.search.jobs import Job, State
from autopart.search.mcts.tree import Tree
from autopart.search.optimizers.refine import SINGLE, climb, refine_best
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
    until      states that are costed when refinement of the best is put off
    """

    def __init__(self, problem: Problem, tree: Tree, seeds: list[Decisions]):
        self._problem, self._tree = problem, tree
        self._random = np.random.default_rng(problem.seed)
        self._seeds: list[Decisions] = [*seeds[:PARENTS], ()]
        self.parents, self.until = [problem.best], math.inf
        self._refined: State | None = None
        self._neighbours: set[Decisions] = set()
        self._climbed: set[int] = set()
        self._stale = 0

    @property
    def exhausted(self) -> bool:
        """True where new states are no longer found."""
        return self._stale >= STALE

    def wave(self) -> None:
        """Refines the best state if it is new; then makes states of the parents, and climbs from one of them."""
        if self._refined is not self._problem.best:
            self._refine()
            return
        start = self._start()
        if start is None:
            self._stale += 1
            return
        self._stale = 0
        self._climbed.add(start.key)
        if self._refined is self._problem.best:
            self._keep(climb(self._problem, start, SINGLE, self._promise, wave=WAVE, patience=PATIENCE))

    def _refine(self) -> None:
        """Climbs from the best state in every direction, on from where that was put off."""
        whole = refine_best(self._problem, self._promise, self._neighbours, self.until)
        self._refined = self._problem.best if whole else None
        self._keep(self._problem.best)

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
