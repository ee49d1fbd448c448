"""Where the early ops repeat themselves: after which of them a layer ends.

    steps      e  n a o +  n m +  n a o +  n m +  n a o +  n m +  l      e embedding, n norm, a and o attention, ...
    period        |      7      '|      7      '|      7      '|         what stands 7 steps later is of one kind
    streams     x       x      x       x      x       x      x           bytes that what comes soon reads

A layer is a shortest stretch of kinds of ops that comes again right behind itself. Kinds alone count, not sizes: blocks
of a UNet are equal layers although each level has other channels. A stretch may begin anywhere in a layer; it begins
where least flows, such as one residual stream, and where no weights are divided between two layers. Not every stretch
that repeats is a layer: two convolutions in a row inside a block do, but between them flow their result and what goes
around both. So one that is much wider at its ends than inside is none. What an op much further on reads, such as a
UNet's skips, is no stream.

The period whose layers make most residuals is taken first, then those of what lies between its layers. Where no period
is, a block may end anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.passes.recompute.lifetimes import Lifetimes
from autopart.core.repeats.periods import periods

LEAST_SHARE = 0.05
"""Share of all residuals that the layers of one period have at least."""

ALMOST = 0.8
"""Of periods whose layers make about as many residuals, this share of the most or more, the shortest is the layer's."""

WIDER = 1.6
"""How many times more may flow at a layer's ends than at its narrowest place; twice as much is two streams for one."""

ABOUT = 1.05
"""Places through which up to so many times the least flows are as narrow."""

SOON = 1.5
"""What is read within so many layers behind an op is a stream there."""


class LayerEnds(NamedTuple):
    """Which early steps may be the last of a block.

    may_end[i]   the i-th of the steps does not stand inside a layer
    largest      bytes of the residuals that the largest layer makes
    """

    may_end: np.ndarray
    largest: float


class _Layers(NamedTuple):
    """Equal layers in a row: the place before the first, the last place of each, and all their residual bytes."""

    ends: np.ndarray
    residual: float


def layer_ends(life: Lifetimes, cut: int, steps: np.ndarray, size: np.ndarray, residual: np.ndarray) -> LayerEnds:
    """The ends of layers among early `steps`; bytes are those of `life.values` and of what each step makes."""
    found = _Repeats(life, cut, steps, size, residual)
    may_end, largest, until = np.ones(len(steps), np.bool_), 0.0, np.concatenate([[0.0], np.cumsum(residual)])
    for layers in found.between(0, len(steps)):
        may_end[layers.ends[0] + 1 : layers.ends[-1]] = False
        may_end[layers.ends[1:]] = True
        each = np.diff(until[layers.ends + 1])
        largest = max(largest, float(each.max()))
    return LayerEnds(may_end, largest)


class _Repeats:
    """The early steps of a scope as a string of kinds; places are numbers of steps."""

    def __init__(self, life: Lifetimes, cut: int, steps: np.ndarray, size: np.ndarray, residual: np.ndarray):
        specs = life.program.specs
        numbers: dict[tuple[object, ...], int] = {}
        of_steps = life.program.op_spec[steps].tolist()
        self._word = np.array([numbers.setdefault(_kind(specs[n]), len(numbers)) for n in of_steps], np.uint64)
        self._residual = residual
        self._from, self._to, self._bytes = _flows(life, cut, steps, size)
        self._arguments = _argument_reads(life, cut, steps)

    def between(self, start: int, end: int) -> Iterator[_Layers]:
        """All layers of the steps from `start` to `end`."""
        found = [rows for period in periods(self._word[start:end]) if (rows := self._repeated(period, start, end))]
        makes = [sum(row.residual for row in rows) for rows in found]
        most = max(makes, default=0.0)
        if most <= LEAST_SHARE * self._residual.sum():
            return
        rows = next(rows for rows, bytes_ in zip(found, makes, strict=True) if bytes_ >= ALMOST * most)
        yield from rows
        for row in rows:
            yield from self.between(start, int(row.ends[0]) + 1)
            start = int(row.ends[-1]) + 1
        yield from self.between(start, end)

    def _repeated(self, period: int, start: int, end: int) -> list[_Layers]:
        """The layers of a period, wherever at least two stand in a row."""
        word = self._word[start:end]
        same = np.concatenate([[False], word[:-period] == word[period:], [False]])
        begins, stops = np.flatnonzero(same[1:] & ~same[:-1]), np.flatnonzero(same[:-1] & ~same[1:])
        long = stops - begins >= period
        if not long.any():
            return []
        streams, split = self._streams(round(SOON * period)), self._split(period)
        rows = [
            self._narrowest(period, start + begin, start + stop + period, streams, split)
            for begin, stop in zip(begins[long].tolist(), stops[long].tolist(), strict=True)
        ]
        return [row for row in rows if row is not None]

    def _narrowest(self, period: int, start: int, end: int, streams: np.ndarray, split: np.ndarray) -> _Layers | None:
        """The layers among repeating steps, which begin where least flows; None where they are too wide there."""
        count = (end - start) // period
        wide = streams[start : start + count * period].reshape(count, period).mean(axis=0)
        split = split[start : start + count * period].reshape(count, period).sum(axis=0)
        is_less = np.arange(period) > end - start - count * period
        phase = min(
            np.flatnonzero(wide <= ABOUT * wide.min()).tolist(), key=lambda phase: (split[phase], is_less[phase])
        )
        places = np.arange(start + phase, end + 1, period)
        flow = streams[places]
        from_outside = flow[0] < 0.25 * np.median(flow[1:])
        narrowest = np.minimum.accumulate(streams[places[int(from_outside)] : end + 1])
        ends = places[1 + int(from_outside) :]
        if (
            len(ends) < 2 - int(from_outside)
            or np.median(streams[ends] / np.maximum(narrowest[ends - end - 1], 1.0)) > WIDER
        ):
            return None
        return _Layers(places - 1, float(self._residual[places[0] : places[-1]].sum()))

    def _split(self, period: int) -> np.ndarray:
        """int64[steps + 1]: arguments of a layer, such as weights, that are read before each step and from it on."""
        first, last = self._arguments
        near = last - first <= period
        change = np.zeros(len(self._word) + 2, np.int64)
        np.add.at(change, first[near] + 1, 1)
        np.add.at(change, last[near] + 1, -1)
        return np.cumsum(change)[:-1]

    def _streams(self, soon: int) -> np.ndarray:
        """float64[steps + 1]: bytes there before each step that one of the `soon` steps from it on reads."""
        change = np.zeros(len(self._word) + 2)
        np.add.at(change, np.maximum(self._from, self._to - soon) + 1, self._bytes)
        np.add.at(change, self._to + 1, -self._bytes)
        return np.cumsum(change)[:-1]


def _kind(spec: OpSpec) -> tuple[object, ...]:
    """What is alike in ops of equal layers of other sizes."""
    return spec.kind, tuple(len(t.shape) for t in spec.operands), tuple((len(t.shape), t.dtype) for t in spec.results)


def _flows(life: Lifetimes, cut: int, steps: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(from, to, bytes): a value that flows from one place to the next that reads it, for all early reads in order."""
    read = life.numbers_of(life.whole.shown[life.read])
    early = (read >= 0) & (life.reader >= 0) & (life.reader <= cut)
    read, reader = read[early], np.searchsorted(steps, life.reader[early])
    order = np.lexsort((reader, read))
    read, reader = read[order], reader[order]
    made = np.searchsorted(steps, life.first[read])
    again = np.concatenate([[False], read[1:] == read[:-1]])[: len(read)]
    since = np.where(again, np.concatenate([[0], reader[:-1]])[: len(read)], made)
    return since, reader, size[read]


def _argument_reads(life: Lifetimes, cut: int, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first, last): numbers of the early steps that read each argument which any reads."""
    argument = life.whole.argument_number[life.whole.shown[life.read]]
    early = (life.reader >= 0) & (life.reader <= cut) & (argument >= 0)
    place = np.searchsorted(steps, life.reader[early])
    which, read = np.unique(argument[early], return_inverse=True)
    first, last = np.full(len(which), len(steps)), np.full(len(which), -1)
    np.minimum.at(first, read, place)
    np.maximum.at(last, read, place)
    return first, last
