"""Backup: what a job's states teach the edges above them, and what each decision gained wherever it was taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autopart.search.decisions import Decision

if TYPE_CHECKING:
    from autopart.search.mcts.node import Edge, Node


class Scale:
    """Maps rewards to 0..1 by the best seen and the start's, which is 0; worse ones are 0 too."""

    def __init__(self, start: float):
        self._low = self._high = start

    def see(self, reward: float) -> None:
        """Widens the scale where `reward` is the best yet."""
        self._high = max(self._high, reward)

    def __call__(self, reward: float) -> float:
        """The reward on the scale."""
        width = self._high - self._low
        return min(1.0, max(0.0, (reward - self._low) / width)) if width > 0 else 0.0


class Gains:
    """Mean gain in reward of each decision over all states in which it was taken, drawn towards 0 while rare."""

    def __init__(self) -> None:
        self._total: dict[Decision, float] = {}
        self._count: dict[Decision, int] = {}

    def note(self, decision: Decision, gain: float) -> None:
        """One more observation; it counts for at most a factor of ten either way."""
        self._total[decision] = self._total.get(decision, 0.0) + max(-2.3, min(2.3, gain))
        self._count[decision] = self._count.get(decision, 0) + 1

    def of(self, decision: Decision) -> float:
        """The mean gain; 0 for a decision never taken."""
        return self._total.get(decision, 0.0) / (1 + self._count.get(decision, 0))

    def bias(self, strength: float) -> tuple[tuple[Decision, float], ...]:
        """For rollouts: the gains of all decisions, times `strength`, in the order of the decisions."""
        return tuple((d, strength * self.of(d)) for d in sorted(self._total) if math.isfinite(self.of(d)))


def back_up(nodes: Sequence[Node], edges: Sequence[Edge], reward: float) -> None:
    """Adds `reward` to every edge of a path, and marks edges below which nothing is left."""
    for node, edge in zip(reversed(nodes), reversed(edges), strict=True):
        node.visits += 1
        edge.visits += 1
        edge.total += reward
        edge.best = max(edge.best, reward)
        edge.done = edge.done or edge.decision is None or (edge.child is not None and edge.child.done)
