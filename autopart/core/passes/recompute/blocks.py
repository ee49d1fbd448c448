"""Where the early ops of a scope are cut into blocks: what enters a block is kept, what is inside it computed again.

    embed | attention + mlp | attention + mlp | ... | loss       kept: what later early ops read across an end
      x   |        x        |        x        |                  x, the residual stream

Blocks are found by what flows between the early ops, so no names are needed. Where ops repeat themselves (`layers.py`),
a block is a layer, or several small ones, as if `jax.checkpoint` were written around them; elsewhere it may end
anywhere. While the late ops of one block run, all that block's residuals are there again, beside what is kept. So long
blocks keep little and hold much at a time. With a limit for a block's residuals, a block ends where least is kept for
each byte that is not; what an earlier end keeps, such as the skips of a UNet, counts once. Where there are layers, the
limit is the largest layer's residuals: two layers in one block would compute the end of the first one again. Elsewhere
that limit is taken for which

    kept + the largest block's residuals

is least. The last block would be computed again as soon as it is done, for nothing: it is kept. Of a view, such as a
reshape, what it shows is kept: it costs nothing to make again, and as an array of its own it would be a copy.
"""

from __future__ import annotations

import numpy as np

from autopart.core.passes.recompute.layers import layer_ends
from autopart.core.passes.recompute.lifetimes import Lifetimes

LIMITS = 24
"""How many limits are tried where there are no layers: from the largest residual to all, by equal factors."""

ALMOST_LEAST = 1.02
"""The last two blocks are kept as one where no more than so many times the bytes are there: less is computed again."""

LEAST_WIDE = 0.01
"""Bytes that the least value counts as where blocks end, over the largest residual's: a mean beside what it is of."""


def kept_between_blocks(life: Lifetimes, cut: int, must_keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(kept, block): of each of the lifetimes' values, whether it is kept, and the number of the block that makes it.

    `must_keep` are kept in any case. What is late belongs to no block: -1.
    """
    kept, ends = _Blocks(life, cut, must_keep).best()
    block = np.searchsorted(np.array(ends, np.int64), life.first, side="left")
    return kept, np.where(life.first <= cut, block, -1)


class _Blocks:
    """The early values of a scope, those that are kept anyway left out of all sums.

    steps[i]       the steps that make early values with memory, in order; `residual[i]` bytes of these are read late
    flows          a value flows from the number of the step that makes it to that of the last early step that reads it
    """

    def __init__(self, life: Lifetimes, cut: int, must_keep: np.ndarray):
        self._life, self._cut, self._must = life, cut, must_keep
        self._last_early = life.last_reads((life.reader >= 0) & (life.reader <= cut))
        self._early = np.flatnonzero(life.first <= cut)
        self._is_view = life.whole.shown[life.values] != life.values
        free = ~must_keep[self._early]
        self._counted = self._early[free]
        size, first = np.where(must_keep, 0.0, life.size), life.first
        self._steps = np.unique(first[self._early[life.size[self._early] > 0]])
        late = self._counted[life.last[self._counted] > cut]
        self._residual = np.zeros(len(self._steps))
        np.add.at(self._residual, np.searchsorted(self._steps, first[late]), size[late])
        self._made = np.concatenate([[0.0], np.cumsum(self._residual)])
        self._layers = layer_ends(life, cut, self._steps, size, self._residual)
        flows = self._counted[(size[self._counted] > 0) & (self._last_early[self._counted] > first[self._counted])]
        flows = flows[np.argsort(first[flows], kind="stable")]
        self._from = np.searchsorted(self._steps, first[flows])
        self._to = np.searchsorted(self._steps, self._last_early[flows])
        self._flow_bytes = np.maximum(size[flows], LEAST_WIDE * self._residual.max(initial=0.0))

    def best(self) -> tuple[np.ndarray, list[int]]:
        """What is kept under the best limit, and the steps after which its blocks end."""
        total, largest = self._residual.sum(), self._residual.max(initial=0.0)
        if total <= 0 or not len(self._steps):
            return self._kept([]), []
        least_limit = max(largest, self._layers.largest, total / 4096)
        limits = np.geomspace(least_limit, max(total, least_limit), 1 if self._layers.largest else LIMITS)
        ends = min((self._ends(float(limit)) for limit in limits), key=self._bytes)
        if self._bytes(ends[:-1]) <= ALMOST_LEAST * self._bytes(ends):
            ends = ends[:-1]
        return self._kept(ends), ends

    def _ends(self, limit: float) -> list[int]:
        """The steps after which blocks end, the last block's left out."""
        ends: list[int] = []
        start = 0
        while True:
            stop = int(np.searchsorted(self._made, self._made[start] + limit, side="right")) - 1
            end = self._end(start, stop) if stop < len(self._steps) else -1
            if not 0 <= end < len(self._steps) - 1:
                return ends
            ends.append(int(self._steps[end]))
            start = end + 1

    def _end(self, start: int, stop: int) -> int:
        """Where a block of the steps from `start` to `stop` ends, else the next place that may be one; -1: none."""
        held = self._made[start + 1 : stop + 1] - self._made[start]
        places = np.flatnonzero(self._layers.may_end[start:stop] & (held > 0))
        if not len(places):
            later = np.flatnonzero(self._layers.may_end[stop:])
            return stop + int(later[0]) if len(later) else -1
        low, high = np.searchsorted(self._from, [start, stop])
        change = np.zeros(stop - start + 1)
        np.add.at(change, self._from[low:high] - start, self._flow_bytes[low:high])
        np.add.at(change, np.minimum(self._to[low:high], stop) - start, -self._flow_bytes[low:high])
        kept_per_byte = np.cumsum(change)[places] / held[places]
        return start + int(places[len(places) - 1 - kept_per_byte[::-1].argmin()])

    def _kept(self, ends: list[int]) -> np.ndarray:
        """What crosses an end of a block, and the last block."""
        first, kept = self._life.first, self._must.copy()
        crossed = np.searchsorted(ends, self._last_early) > np.searchsorted(ends, first)
        kept |= crossed & ~self._is_view
        if not ends:
            return kept | (first <= self._cut)
        return kept | ((first > ends[-1]) & (first <= self._cut))

    def _bytes(self, ends: list[int]) -> float:
        """What is kept and the residuals of the largest block."""
        life, kept = self._life, self._kept(ends)
        late = (life.first <= self._cut) & (life.last > self._cut)
        crossing = (life.first <= (ends[-1] if ends else -1)) & kept & ~self._must
        at = np.searchsorted(np.array(ends, np.int64), life.first, side="left")
        again = late & ~self._must & ~(kept & crossing)
        blocks = np.bincount(at[again], weights=life.size[again], minlength=len(ends) + 1)
        return float(life.size[crossing].sum() + blocks.max(initial=0.0))
