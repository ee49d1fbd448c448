"""The search tree: waves of `width` leaves, each expanded and followed by a short rollout.

    wave   select 32 leaves (each makes the next avoid it) -> 32 jobs -> back up in the order of selection

The order of everything is fixed by the seed: workers only make it faster.
"""

from __future__ import annotations

import itertools
from typing import Protocol

from autopart.search.evaluation.jobs import Job, State
from autopart.search.mcts.backup import DecisionValues, RewardNormaliser, back_up
from autopart.search.mcts.node import Graph, reward_of
from autopart.search.mcts.selection import Path, select
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision

MAX_STOPS = 10_000
"""STOP edges followed while filling one wave; they cost nothing and end by themselves."""


class TreeSettings(Protocol):
    """See `MCTS`."""

    @property
    def width(self) -> int:
        """Leaves per wave."""
        ...

    @property
    def rollout(self) -> int:
        """Decisions drawn after each new leaf."""
        ...

    @property
    def exploration(self) -> float:
        """Weight of the priors against the rewards."""
        ...


class Tree:
    """The state of one search: what it has expanded, and what it learned of single decisions.

    best    the best state that it has come to itself
    """

    def __init__(self, problem: Problem, settings: TreeSettings):
        self.problem, self.settings = problem, settings
        self.graph, self.gains = Graph(problem.start), DecisionValues()
        self.scale = RewardNormaliser(self.graph.root.reward)
        self.best = problem.start
        self.idle, self._jobs = 0, 0

    def seed(self, sequences: list[tuple[Decision, ...]]) -> None:
        """Costs whole schedules, decision by decision, and adds them to the graph."""
        jobs = [Job(s, each=True) for s in sequences if s]  # what needs no decision is the root
        for first in range(0, len(jobs), self.settings.width):
            wave = jobs[first : first + self.settings.width]
            for job, states in zip(wave, self.problem.run(wave), strict=True):
                self._insert(job, states)

    def _insert(self, job: Job, states: tuple[State, ...]) -> None:
        self._look_at(states)
        node, nodes, edges = self.graph.root, [], []
        for decision, state in zip(job.decisions, states, strict=True):
            node.expand()
            edge = next((e for e in node.edges if e.decision == decision), None)
            if edge is None or state.key == node.state.key:
                continue
            self.learn(node.state, state)
            edge.child = edge.child or self.graph.node(state)
            nodes.append(node)
            edges.append(edge)
            node = edge.child
        if edges:
            back_up(nodes, edges, max(map(reward_of, states)))

    def wave(self) -> bool:
        """One wave; False if there was nothing left to try."""
        paths: list[Path] = []
        for _ in range(MAX_STOPS):
            if len(paths) == self.settings.width:
                break
            path = select(self.graph, self.scale, self.gains, self.settings.exploration)
            if path is None:
                break
            if path.edges[-1].decision is None:
                back_up(path.nodes, path.edges, path.nodes[-1].reward)
                continue
            for edge in path.edges:
                edge.pending += 1
            paths.append(path)
        if not paths:
            return False
        self._run(paths)
        return True

    def _run(self, paths: list[Path]) -> None:
        bias, best = self.gains.bias(), self.problem.best
        jobs = []
        for path in paths:
            self._jobs += 1
            seed = (self.problem.seed << 32) + self._jobs
            jobs.append(Job(path.decisions, rollout=self.settings.rollout, seed=seed, bias=bias, stop=0.1))
        for path, states in zip(paths, self.problem.run(jobs), strict=True):
            self._look_at(states)
            edge = path.edges[-1]
            edge.child = self.graph.node(states[0])
            self.learn(path.nodes[-1].state, states[0])
            for before, after in itertools.pairwise(states):
                self.learn(before, after)
            if states[0].key == path.nodes[-1].state.key or not states[0].options:
                edge.done = True
            for e in path.edges:
                e.pending -= 1
            back_up(path.nodes, path.edges, max(map(reward_of, states)))
        self.idle = 0 if self.problem.best is not best else self.idle + len(paths)

    def _look_at(self, states: tuple[State, ...]) -> None:
        self.best = min((self.best, *states), key=lambda state: state.cost.rank)

    def learn(self, before: State, after: State) -> None:
        """What one more decision gained."""
        if after.decisions:
            self.gains.of(after.decisions[-1]).note(reward_of(after) - reward_of(before))
        self.scale.see(reward_of(after))
