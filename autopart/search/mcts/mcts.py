"""MCTS: waves of `width` leaves, each expanded and followed by a short rollout; then refinement of the best.

    wave   select 32 leaves (each makes the next avoid it) -> 32 jobs -> back up in the order of selection
    end    the last `refinement` of the budget climbs from the best state

The order of everything is fixed by the seed: workers only make it faster.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from autopart.core.arguments import FLAG, check_fields, number, whole
from autopart.search.jobs import Job, State
from autopart.search.mcts.backup import DecisionValues, RewardNormaliser, back_up
from autopart.search.mcts.node import Graph, reward_of
from autopart.search.mcts.selection import Path, select
from autopart.search.optimizers.optimizer import register_optimizer
from autopart.search.optimizers.refine import refine
from autopart.search.problem import Problem
from autopart.search.space.decisions import Decision

SEEDS = 4
"""Schedules that the tree begins with, the best of those that were costed before: their decisions one by one."""

MAX_STOPS = 10_000
"""STOP edges followed while filling one wave; they cost nothing and end by themselves."""


@register_optimizer("mcts")
@dataclass(frozen=True)
class MCTS:
    """Monte Carlo tree search.

    seeded        begin the tree with the best of the schedules that were costed before: given ones and named ones
    width         leaves per wave; part of the answer, unlike the number of workers
    rollout       decisions drawn after each new leaf, by prior and by what they gained elsewhere
    exploration   weight of the priors against the rewards
    refinement    share of the budget for refining the best state
    idle          new leaves without a better state after which it refines
    """

    seeded: bool = True
    width: int = 32
    rollout: int = 1
    exploration: float = 0.6
    refinement: float = 0.4
    idle: int = 400

    def __post_init__(self) -> None:
        check_fields(
            self,
            seeded=FLAG,
            width=whole(1),
            rollout=whole(0),
            exploration=number(0),
            refinement=number(0, 1),
            idle=whole(1),
        )

    def search(self, problem: Problem) -> None:
        """See `Optimizer.search`."""
        tree = Tree(problem, self)
        if self.seeded:
            tree.seed([decisions for _, decisions in problem.seeds[:SEEDS]])
        while problem.share_spent < 1 - self.refinement and tree.idle < self.idle:
            if not tree.wave():
                break
        refine(problem, problem.best)
        while problem.evaluations_left > 0 and tree.wave():
            if tree.idle >= 2 * self.idle:
                break


class Tree:
    """The state of one search: what it has expanded, and what it learned of single decisions."""

    def __init__(self, problem: Problem, settings: MCTS):
        self.problem, self.settings = problem, settings
        self.graph, self.gains = Graph(problem.start), DecisionValues()
        self.scale = RewardNormaliser(self.graph.root.reward)
        self.idle, self._jobs = 0, 0

    def seed(self, sequences: list[tuple[Decision, ...]]) -> None:
        """Costs whole schedules, decision by decision, and adds them to the graph."""
        jobs = [Job(s, each=True) for s in sequences]
        for first in range(0, len(jobs), self.settings.width):
            wave = jobs[first : first + self.settings.width]
            for job, states in zip(wave, self.problem.run(wave), strict=True):
                self._insert(job, states)

    def _insert(self, job: Job, states: tuple[State, ...]) -> None:
        node, nodes, edges = self.graph.root, [], []
        for decision, state in zip(job.decisions, states, strict=True):
            node.expand()
            edge = next((e for e in node.edges if e.decision == decision), None)
            if edge is None or state.key == node.state.key:
                continue
            self._learn(node.state, state)
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
        bias, best = self.gains.bias(2.0), self.problem.best
        jobs = []
        for path in paths:
            self._jobs += 1
            seed = (self.problem.seed << 32) + self._jobs
            jobs.append(Job(path.decisions, rollout=self.settings.rollout, seed=seed, bias=bias, stop=0.1))
        for path, states in zip(paths, self.problem.run(jobs), strict=True):
            edge = path.edges[-1]
            edge.child = self.graph.node(states[0])
            self._learn(path.nodes[-1].state, states[0])
            for before, after in itertools.pairwise(states):
                self._learn(before, after)
            if states[0].key == path.nodes[-1].state.key or not states[0].options:
                edge.done = True
            for e in path.edges:
                e.pending -= 1
            back_up(path.nodes, path.edges, max(map(reward_of, states)))
        self.idle = 0 if self.problem.best is not best else self.idle + len(paths)

    def _learn(self, before: State, after: State) -> None:
        if after.decisions:
            self.gains.of(after.decisions[-1]).note(reward_of(after) - reward_of(before))
        self.scale.see(reward_of(after))
