"""When each stage works on which microbatch: loop skewing (Lamport 1974; GSPMD, section 3.3).

    p = 4, m = 8        forward of microbatch i in stage s at tick i + s, its backward at tick d + i + p - 1 - s

    gpipe   d = m + p - 1: after all forwards          1f1b   d = p - 1: as soon as the last stage has its gradient
    tick    0 .. m+p-2   forward                       0 .. p-2        forward           (fill)
            m+p-1 ..     backward                      p-1 .. m+p-2    forward, backward (steady)
                                                       m+p-1 .. m+2p-3 backward          (drain)

    circular, v = 2     stage s has layers' runs s and s + p; p microbatches go round twice, then the next p:
                        visit k of a stage, at tick k + s, is run r of microbatch i
                          k    0 1 2 3   4 5 6 7   8 9 ..
                          i    0 1 2 3   0 1 2 3   4 5 ..
                          r    0 0 0 0   1 1 1 1   0 0 ..       backwards r counts down

All stages of a tick are independent of each other. What a stage leaves moves to its neighbour between ticks. A tick of
a kind lasts as long for one stage as for all, so ticks with both kinds of work are a loop of their own: in it, what is
between runs once for each microbatch. Where no gradient comes before all forwards have ended, what is around the layers
runs in loops between those over ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from autopart.spmd.pipeline.nest import AFTER, BEFORE, BETWEEN, ENTER, GONE, LEAVE, PLACES, RETURN, Kept

SCHEDULES = ("gpipe", "1f1b", "circular")
"""The orders of microbatches that are known."""


@dataclass(frozen=True)
class TurnLoop:
    """Turns `[start, end)` of a loop, and the places of a microbatch in them; `stages`: over ticks."""

    start: int
    end: int
    places: tuple[str, ...]
    stages: bool


@dataclass(frozen=True)
class Ticks:
    """The ticks of `microbatches` that go through `stages`, `repeats` times each."""

    stages: int
    microbatches: int
    schedule: str
    repeats: int = 1

    @property
    def visits(self) -> int:
        """How often a stage works on something, forward."""
        return self.microbatches * self.repeats

    @property
    def kind_ticks(self) -> int:
        """Ticks with forward work, and as many with backward work."""
        return self.visits + self.stages - 1

    @property
    def is_apart(self) -> bool:
        """All forwards come before any backward."""
        return self.schedule != "1f1b"

    @property
    def first_return(self) -> int:
        """The tick at which the first gradient enters the last stage."""
        return self.kind_ticks if self.is_apart else self.stages - 1

    def delay(self, place: str) -> int:
        """Visit k is at a place at tick k + delay."""
        late = self.stages - 1 if place in (LEAVE, BETWEEN, GONE, AFTER) else 0
        return late + (self.first_return if place in (RETURN, GONE, AFTER) else 0)

    @property
    def loops(self) -> tuple[TurnLoop, ...]:
        """The loops, in order."""
        begin, end, turns = self.first_return, self.kind_ticks, self.microbatches
        if self.is_apart:
            return (
                TurnLoop(0, turns, (BEFORE,), False),
                TurnLoop(0, end, (ENTER, LEAVE), True),
                TurnLoop(0, turns, (BETWEEN,), False),
                TurnLoop(begin, begin + end, (RETURN, GONE), True),
                TurnLoop(0, turns, (AFTER,), False),
            )
        found = list[TurnLoop]()
        for a, b in pairwise(sorted({0, begin, end, begin + end})):
            on_the_way = PLACES[: 4 if begin <= a else 3] if a < end else ()
            found.append(TurnLoop(a, b, on_the_way + (PLACES[4:] if begin <= a else ()), True))
        return tuple(found)

    def work(self, stage: int) -> Iterator[tuple[int, str, int, int]]:
        """(tick, "F" or "B", microbatch, run of layers) of each visit of a stage, forward and back."""
        for visit in range(self.visits):
            group, within = divmod(visit, self.stages * self.repeats) if self.repeats > 1 else (0, 0)
            microbatch = group * self.stages + within % self.stages if self.repeats > 1 else visit
            run, back = within // self.stages, self.first_return + self.stages - 1 - stage
            yield visit + stage, "F", microbatch, run
            yield visit + back, "B", microbatch, self.repeats - 1 - run

    @property
    def slots(self) -> int:
        """Ticks of a stage's residuals that are alive at a time: the first stage's wait longest."""
        return min(self.first_return + self.stages, self.kind_ticks)

    def slots_of(self, kept: Kept) -> int:
        """Microbatches of which a value waits at a time. In a tick places come in order."""
        if self.is_apart:
            return self.microbatches
        made = PLACES.index(kept.home)
        waits = [self.delay(r) - self.delay(kept.home) + (PLACES.index(r) > made) for r in kept.readers]
        return max(1, min(max(waits), self.microbatches))
