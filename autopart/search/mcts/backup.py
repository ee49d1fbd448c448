"""Backup: what a job's states teach the edges above them, and what each decision gained wherever it was taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autopart.search.space.decisions import Decision, Option

if TYPE_CHECKING:
    from autopart.search.mcts.node import Edge, Node

STRENGTH = 2.0
"""How much of a decision's mean gain counts beside its prior."""

LEAST_PRIOR = 1e-6
"""A small stake is tried, too."""


class RewardNormaliser:
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


@dataclass(eq=False, slots=True)
class DecisionValue:
    """Mean gain in reward of one decision over all states in which it was taken, drawn towards 0 while rare."""

    total: float = 0.0
    count: int = 0
    mean: float = 0.0

    def note(self, gain: float) -> None:
        """One more observation; it counts for at most a factor of ten either way."""
        self.total += max(-2.3, min(2.3, gain))
        self.count += 1
        self.mean = self.total / (1 + self.count)


class DecisionValues:
    """The gain of each decision."""

    def __init__(self) -> None:
        self._of: dict[Decision, DecisionValue] = {}

    def of(self, decision: Decision) -> DecisionValue:
        """The gain of a decision; it stays the same object."""
        gain = self._of.get(decision)
        if gain is None:
            gain = self._of[decision] = DecisionValue()
        return gain

    def bias(self) -> tuple[tuple[Decision, float], ...]:
        """For rollouts: the gains of all decisions, times `STRENGTH`, in the order of the decisions."""
        seen = sorted(d for d, gain in self._of.items() if gain.count)
        return tuple((d, STRENGTH * self._of[d].mean) for d in seen if math.isfinite(self._of[d].mean))

    def promise(self, option: Option) -> float:
        """What an option promises, as rollouts weigh it: its prior, times what it gained elsewhere."""
        return max(option.prior, LEAST_PRIOR) * math.exp(STRENGTH * self.of(option.decision).mean)


def back_up(nodes: Sequence[Node], edges: Sequence[Edge], reward: float) -> None:
    """Adds `reward` to every edge of a path, and marks edges below which nothing is left."""
    for node, edge in zip(reversed(nodes), reversed(edges), strict=True):
        node.visits += 1
        edge.visits += 1
        edge.total += reward
        edge.best = max(edge.best, reward)
        edge.done = edge.done or edge.decision is None or (edge.child is not None and edge.child.done)
