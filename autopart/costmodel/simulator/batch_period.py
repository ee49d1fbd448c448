"""After how many layers the batches of combined reductions repeat themselves, before a run is made.

    backward   5      4      3      2                 each layer leaves two gradients, and three fit one collective:
    reductions a  b   a  b   a  b   a  b              every third layer is alike, and so are layers 5 and 2
    batches    1  1   1  2   2  2   3  3

    batches    1  1   1  1   1  2   2  2          no collective fills but one, with layer 3: layers 5 and 4 are alike

A run of one layer that stands for others is exact where batches repeat with each layer, one of three layers taken
together where they repeat after three (`core/fewer_layers.py`); where they do so between some layers only, those alone
are left out. Which results wait is seen from how soon an op reads
them, which is close to what the simulator finds; whether layers are alike is looked at after a run.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.core.fewer_layers import FewerLayers
from autopart.core.kernels import kernel
from autopart.core.like_ops import Like
from autopart.core.program import Program
from autopart.costmodel.simulator.combine import MAX_COMBINED, NEVER, SOON_OPS
from autopart.costmodel.simulator.redistribution_costs import BYTES_IN, COMBINABLE

ENDS_IN = 8
"""Layers between which batches repeat begin and end at this part of the stack: so few programs have them left out."""

LEAST_PERIODS = 5
"""Of so many periods two are left out."""

JOINS, ALONE = -1, -2
"""Of a result that joins a batch which another begins, and of one that may not be combined."""

MIXER = np.uint64(0x9E3779B97F4A7C15)


class MayWait(NamedTuple):
    """Results of the whole program that nothing reads soon, in program order.

    like      int64[n]: the value of the program with fewer layers that each is like
    at        int64[n]: the op that makes it; wanted: the first op that reads it
    layer     int64[n]: its layer, from 0 for the first inside the stack
    chain     int64[n]: the chain of its op, -1 for none
    layers    inside the stack
    """

    like: np.ndarray
    at: np.ndarray
    wanted: np.ndarray
    layer: np.ndarray
    chain: np.ndarray
    layers: int

    @staticmethod
    def of(whole: Program, fewer: FewerLayers, like: Like) -> MayWait:
        """Those of the program of which `fewer` has some layers; `like` from its values to those of `fewer`."""
        wanted, layers = np.full(whole.value_count, NEVER), fewer.layers
        np.minimum.at(wanted, whole.operands, whole.use_position)
        values = np.flatnonzero(wanted - whole.value_op >= SOON_OPS)
        op, count = whole.value_op[values].astype(np.int64), layers.last - layers.first + 1
        chain, layer = layers.chain[op].astype(np.int64), layers.layer[op].astype(np.int64) - layers.first
        return MayWait(like.values[values], op, wanted[values], layer, chain, count)


class Repeats(NamedTuple):
    """After `period` layers batches repeat themselves, from layer `first` inside the stack to `last`, from 0."""

    period: int
    first: int
    last: int

    def throughout(self, may_wait: MayWait) -> bool:
        """True if all layers inside the stack are alike."""
        return self == (1, 0, may_wait.layers - 1)


def repeats(
    may_wait: MayWait, at_def: np.ndarray, plan_rows: np.ndarray, figures: np.ndarray, kinds: int, combine_bytes: float
) -> Repeats | None:
    """The least number of layers after which batches repeat themselves throughout, else that which leaves out most.

    None where too few layers are alike.
    `at_def` and `plan_rows` are those of the lowering of the program with fewer layers, `kinds` as in `KnownPlans`.
    """
    row_of = np.zeros(int(may_wait.like.max(initial=0)) + 1, np.int64)
    known = at_def < len(row_of)
    row_of[at_def[known]] = plan_rows[: len(at_def)][known]
    batches = _Open(np.full(kinds, -1.0), *np.empty((3, kinds), np.int64))
    mark, ends = np.zeros(may_wait.layers, np.uint64), np.empty(len(may_wait.like), np.int64)
    grid, found = max(1, may_wait.layers // ENDS_IN), np.zeros(3, np.int64)
    _repeats(may_wait, row_of, figures, float(combine_bytes), batches, ends, mark, grid, found)
    return Repeats(*found.tolist()) if found[0] > 0 else None


class _Open(NamedTuple):
    """By kind, of the batch that others may still join: its bytes (-1: none), how many joined, when one is read, and
    the place of the first in `MayWait`.
    """

    held: np.ndarray
    joined: np.ndarray
    deadline: np.ndarray
    first: np.ndarray


@kernel
def _batches(
    may_wait: MayWait, row_of: np.ndarray, figures: np.ndarray, combine_bytes: float, batches: _Open, ends: np.ndarray
) -> None:
    """Fills in ends[i]: where result i begins a batch, the last that joins it; else `JOINS` or `ALONE`."""
    for i in range(may_wait.like.shape[0]):
        row = row_of[may_wait.like[i]]
        kind = int(figures[COMBINABLE, row]) - 1
        ends[i] = ALONE
        if kind >= 0:
            begins = _joins(batches, kind, figures[BYTES_IN, row], may_wait.at[i], may_wait.wanted[i], combine_bytes)
            if begins:
                batches.first[kind] = i
            ends[i] = JOINS
            ends[batches.first[kind]] = i


@kernel
def _mark(may_wait: MayWait, ends: np.ndarray, mark: np.ndarray) -> None:
    """mark[layer], zeros, becomes equal for layers with batches that begin at the same results, and end alike."""
    chain, layer = may_wait.chain, may_wait.layer
    for i in range(ends.shape[0]):
        if ends[i] != ALONE and chain[i] >= 0 and 0 <= layer[i] < mark.shape[0]:
            told = 2 * chain[i]
            if ends[i] >= 0:
                last = ends[i]
                told += 1
                mark[layer[i]] += np.uint64(chain[last] + 1) * MIXER
                if chain[last] >= 0:
                    mark[layer[i]] ^= np.uint64(layer[last] - layer[i] + mark.shape[0])
            mark[layer[i]] = (mark[layer[i]] ^ np.uint64(told)) * MIXER


@kernel
def _repeats(
    may_wait: MayWait,
    row_of: np.ndarray,
    figures: np.ndarray,
    combine_bytes: float,
    batches: _Open,
    ends: np.ndarray,
    mark: np.ndarray,
    grid: int,
    found: np.ndarray,
) -> None:
    """Fills in `found`, zeros, with the fields of `Repeats` where layers are alike; scratch: see `_batches`, `_mark`.

    Where they are not so throughout, layers begin and end at multiples of `grid`. The first of them is left out of
    those that are alike: a batch that begins before them may end there.
    """
    _batches(may_wait, row_of, figures, combine_bytes, batches, ends)
    _mark(may_wait, ends, mark)
    layers, most = mark.shape[0], 0
    for period in range(1, layers // 3 + 1):
        throughout = True
        for layer in range(layers // period * period - period):
            throughout = throughout and mark[layer] == mark[layer + period]
        if throughout:
            found[0], found[1], found[2] = period, 0, layers - 1
            return
    for period in range(1, layers // 3 + 1):
        first = 0
        for last in range(period - 1, layers):
            if last + 1 < layers and mark[last + 1] == mark[last + 1 - period]:
                continue
            begin = (first + grid) // grid * grid if first > 0 else 0
            end = (last + 1) // grid * grid - 1 if last < layers - 1 else last
            periods = (end - begin + 1) // period
            if periods >= LEAST_PERIODS and (periods - 3) * period > most:
                most, found[0], found[1], found[2] = (periods - 3) * period, period, begin, end
            first = last + 2 - period


@kernel
def _joins(batches: _Open, kind: int, operand_bytes: float, at: int, wanted: int, combine_bytes: float) -> int:
    """Puts a reduction into the batch of its kind; returns 1 if it begins a new one, else 0."""
    held, joined, deadline = batches.held, batches.joined, batches.deadline
    fits = held[kind] + operand_bytes <= combine_bytes and joined[kind] < MAX_COMBINED
    begins = held[kind] < 0 or not fits or at >= deadline[kind]
    if begins:
        held[kind], joined[kind], deadline[kind] = 0.0, 0, wanted
    held[kind] += operand_bytes
    joined[kind] += 1
    deadline[kind] = min(deadline[kind], wanted)
    return 1 if begins else 0
