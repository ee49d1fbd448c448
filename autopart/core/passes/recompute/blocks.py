"""Where the early ops of a scope are cut into blocks: what enters a block is kept, what is inside it computed again.

    embed | attention + mlp | attention + mlp | ... | loss       width: bytes that later early ops read
      x   |        x        |        x        |                  x, everywhere between two blocks; more inside one

Blocks are found by what flows between the early ops, so neither names nor equal shapes are needed: they end where
little is read across, such as the residual stream of a transformer or what a UNet hands on (with its skips, which are
kept once). While the late ops of one block run, all that block's residuals are there again, beside what is kept. So
long blocks keep little and hold much at a time. For each of some limits of a block's residuals, blocks are as long as
the limit allows and end at their narrowest place; the limit is taken for which

    kept + the largest block's residuals

is least. The last block would be computed again as soon as it is done, for nothing: it is kept.
"""

from __future__ import annotations

import numpy as np

from autopart.core.passes.recompute.lifetimes import Lifetimes, read_through_views

LIMITS = 24
"""How many limits are tried, from the largest residual to all of them, evenly on a logarithmic scale."""


def kept_between_blocks(life: Lifetimes, cut: int, must_keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(kept, block): of each of the lifetimes' values, whether it is kept, and the number of the block that makes it.

    `must_keep` are kept in any case. What is late belongs to no block: -1.
    """
    kept, ends = _Blocks(life, cut, must_keep).best()
    block = np.searchsorted(np.array(ends, np.int64), life.first, side="left")
    return kept, np.where(life.first <= cut, block, -1)


class _Blocks:
    """The early values of a scope, those that are kept anyway left out of all sums."""

    def __init__(self, life: Lifetimes, cut: int, must_keep: np.ndarray):
        self._life, self._cut, self._must = life, cut, must_keep
        self._last_early = _last_early(life, cut)
        self._early = np.flatnonzero(life.first <= cut)
        free = ~must_keep[self._early]
        self._counted = self._early[free]
        size, first = np.where(must_keep, 0.0, life.size), life.first
        length = cut + 2
        self._residual = np.zeros(length)
        late = self._counted[life.last[self._counted] > cut]
        np.add.at(self._residual, first[late], size[late])
        change = np.zeros(length + 1)
        np.add.at(change, first[self._counted], size[self._counted])
        np.add.at(change, self._last_early[self._counted], -size[self._counted])
        self._width = np.cumsum(change)[:length]
        self._steps = np.unique(first[self._early])

    def best(self) -> tuple[np.ndarray, list[int]]:
        """What is kept under the best limit, and the steps after which its blocks end."""
        total, largest = self._residual.sum(), self._residual.max(initial=0.0)
        found, least = (self._kept([]), list[int]()), np.inf
        if total <= 0 or not len(self._steps):
            return found
        for limit in np.geomspace(max(largest, total / 4096), total, LIMITS):
            ends = self._ends(float(limit))
            kept = self._kept(ends)
            bytes_ = self._bytes(ends, kept)
            if bytes_ < least:
                found, least = (kept, ends), bytes_
        return found

    def _ends(self, limit: float) -> list[int]:
        """The steps after which blocks end, the last block's left out."""
        ends: list[int] = []
        start, held, narrow = 0, 0.0, -1
        steps = self._steps.tolist()
        i = 0
        while i < len(steps):
            step = steps[i]
            held += self._residual[step]
            if held > limit and narrow >= start:
                ends.append(steps[narrow])
                i = start = narrow + 1
                held, narrow = 0.0, -1
                continue
            if narrow < 0 or self._width[step] <= self._width[steps[narrow]]:
                narrow = i
            i += 1
        return ends

    def _kept(self, ends: list[int]) -> np.ndarray:
        """What crosses an end of a block, and the last block."""
        first, kept = self._life.first, self._must.copy()
        for end in ends:
            kept |= (first <= end) & (self._last_early > end)
        if not ends:
            return kept | (first <= self._cut)
        return kept | ((first > ends[-1]) & (first <= self._cut))

    def _bytes(self, ends: list[int], kept: np.ndarray) -> float:
        life = self._life
        late = (life.first <= self._cut) & (life.last > self._cut)
        crossing = (life.first <= (ends[-1] if ends else -1)) & kept & ~self._must
        at = np.searchsorted(np.array(ends, np.int64), life.first, side="left")
        again = late & ~self._must & ~(kept & crossing)
        blocks = np.bincount(at[again], weights=life.size[again], minlength=len(ends) + 1)
        return float(life.size[crossing].sum() + blocks.max(initial=0.0))


def _last_early(life: Lifetimes, cut: int) -> np.ndarray:
    """int64: the last step up to the cut that reads each value, or its first step."""
    program = life.program
    last = np.full(program.value_count, -1, np.int64)
    reader = life.step[program.use_op]
    early = (reader >= 0) & (reader <= cut)
    np.maximum.at(last, program.operands[early], reader[early])
    read_through_views(program, last)
    return np.maximum(last[life.values], life.first)
