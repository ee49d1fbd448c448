"""When each stage works on which microbatch: loop skewing (Lamport 1974; GSPMD, section 3.3).

    p = 4, m = 8        forward of microbatch i in stage s at tick i + s, its backward at tick d + i + p - 1 - s

    gpipe   d = m + p - 1: after all forwards          1f1b   d = p: as soon as the last stage has its gradient
    tick    0 .. m+p-2   forward                       0 .. p-1        forward           (fill)
            m+p-1 ..     backward                      p .. m+p-2      backward, forward (steady)
                                                       m+p-1 .. m+2p-2 backward          (drain)

All stages of a tick are independent of each other. What a stage leaves moves to its neighbour between ticks. A tick of
a kind lasts as long for one stage as for all, so ticks with both kinds of work are a loop of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from autopart.spmd.pipeline.nest import AFTER, BEFORE, BETWEEN, RETURN, Kept

SCHEDULES = ("gpipe", "1f1b")
"""The orders of microbatches that are known."""


@dataclass(frozen=True)
class TickLoop:
    """Ticks `[start, end)`, in which stages do forward work, backward work or both."""

    start: int
    end: int
    forward: bool
    backward: bool


@dataclass(frozen=True)
class Ticks:
    """The ticks of `microbatches` that go through `stages`."""

    stages: int
    microbatches: int
    schedule: str

    @property
    def first_return(self) -> int:
        """The tick at which the gradient of the first microbatch enters the last stage."""
        return self.stages if self.schedule == "1f1b" else self.kind_ticks

    @property
    def kind_ticks(self) -> int:
        """Ticks with forward work, and as many with backward work."""
        return self.microbatches + self.stages - 1

    def delay(self, place: str) -> int:
        """Microbatch i is in a place at tick i + delay."""
        leaves = self.stages - 1
        return {BEFORE: 0, BETWEEN: leaves, RETURN: self.first_return, AFTER: self.first_return + leaves}[place]

    @property
    def loops(self) -> tuple[TickLoop, ...]:
        """The loops over ticks, in order."""
        begin, end = self.first_return, self.kind_ticks
        cuts = sorted({0, begin, end, begin + end})
        found = [TickLoop(a, b, a < end, begin <= a) for a, b in pairwise(cuts)]
        return tuple(loop for loop in found if loop.forward or loop.backward)

    @property
    def slots(self) -> int:
        """Ticks of a stage's residuals that are alive at a time: the first stage's wait longest."""
        return min(self.first_return + self.stages - 1, self.kind_ticks)

    def slots_of(self, kept: Kept) -> int:
        """Microbatches of which a value waits at a time. In a tick gradients come first."""
        waits = [self.delay(reader) - self.delay(kept.home) + (reader == BETWEEN) for reader in kept.readers]
        return max(1, min(max(waits), self.microbatches))
