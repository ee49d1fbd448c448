"""Decisions as they are written down: blocks, each what one manual tactic says.

tile<params/0/w, 1, model>, tile<params/1/w, 1, model>, propagate<model>
  ->  Block(("model",), {"params/0/w": 1, "params/1/w": 1})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autopart.api.tactics.manual import REPLICATED, Choice
from autopart.core.table.actions import Action, Atomic, Propagate, Tile

Decision = int | Choice


@dataclass(frozen=True)
class Block:
    """What is decided before one propagation: by key, for each of the axes, outermost first."""

    axes: tuple[str, ...]
    decisions: dict[str, Decision]

    def without(self, key: str) -> Block:
        """The block without what it decides about a key."""
        return Block(self.axes, {k: d for k, d in self.decisions.items() if k != key})

    def merged(self, keys: Sequence[str], key: str, decision: Decision) -> Block:
        """With one key for all of `keys`, where the first of them stood."""
        found: dict[str, Decision] = {}
        for k, d in self.decisions.items():
            found |= {key: decision} if k == keys[0] else {} if k in keys else {k: d}
        return Block(self.axes, found)


def blocks_of(actions: Sequence[Action], key_of: Callable[[int], str]) -> Iterator[Block]:
    """A block per propagation; decisions about other axes wait for theirs."""
    waiting: dict[str, dict[str, Decision]] = {}
    for action in actions:
        match action:
            case Tile(value, dim, axis):
                waiting.setdefault(axis, {})[key_of(value)] = dim
            case Atomic(value, axis):
                waiting.setdefault(axis, {})[key_of(value)] = REPLICATED
            case Propagate(axis) if axis in waiting:
                yield Block((axis,), waiting.pop(axis))
            case _:
                pass
    for axis, decisions in waiting.items():
        yield Block((axis,), decisions)
