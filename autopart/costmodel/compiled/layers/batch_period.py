"""After how many layers the batches of combined reductions repeat themselves, before a run is made.

    backward   5      4      3      2                 each layer leaves two gradients, and three fit one collective:
    reductions a  b   a  b   a  b   a  b              every third layer is alike, and so are layers 5 and 2
    batches    1  1   1  2   2  2   3  3

    batches    1  1   1  1   1  2   2  2          no collective fills but one, with layer 3: layers 5 and 4 are alike

A run of one layer that stands for others is exact where batches repeat with each layer, one of three layers taken
together where they repeat after three (`fewer_layers.py`); where they do so between some layers only, those alone
are left out. Which results wait is seen from how soon an op reads
them, which is close to what the simulator finds; whether layers are alike is looked at after a run.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.program import Program
from autopart.core.repeats.fewer_layers import FewerLayers
from autopart.core.repeats.like_ops import Like
from autopart.costmodel.compiled.links.collective_combiner import MAX_COMBINED, SOON_OPS
from autopart.costmodel.compiled.links.redistribution_costs import COMBINABLE, COUNTED_BYTES
from autopart.costmodel.compiled.slots import NEVER

ENDS_IN = 8
"""Layers between which batches repeat begin and end at this part of the stack: so few programs have them left out."""

FARTHER = 2
"""Layers that are left in besides where a run is in no steady state."""

LEAST_PERIODS = 5
"""Of so many periods two are left out."""

MIXER = np.uint64(0x9E3779B97F4A7C15)


class MayWait(NamedTuple):
    """Results of the whole program that nothing reads soon, in program order.

    like      int64[n]: the value of the program with fewer layers that each is like
    at        int64[n]: the op that makes it; wanted: the first op that reads it
    layer     int64[n]: its layer, from 0 for the first inside the stack; -1 outside
    chain     int64[n]: the chain of its op
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
        layer = np.where(layers.chain[op] >= 0, layers.layer[op] - layers.first, -1)
        layer = np.where(layer < count, layer, -1).astype(np.int64)
        return MayWait(
            like.values[values], op, wanted[values], np.maximum(layer, -1), layers.chain[op].astype(np.int64), count
        )


class Repeats(NamedTuple):
    """After `period` layers batches repeat themselves, from layer `first` inside the stack to `last`, from 0."""

    period: int
    first: int
    last: int

    def throughout(self, may_wait: MayWait) -> bool:
        """True if all layers inside the stack are alike."""
        return self == (1, 0, may_wait.layers - 1)

    def farther_inside(self) -> Repeats:
        """The same without the first layers: a batch that begins in one of them may end below, where none are alike."""
        return self._replace(first=self.first + FARTHER)


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
    batches = _Open(np.full(kinds, -1.0), np.empty(kinds, np.int64), np.empty(kinds, np.int64))
    mark, found = np.zeros(may_wait.layers, np.uint64), np.zeros(3, np.int64)
    grid = max(1, may_wait.layers // ENDS_IN)
    _repeats(may_wait, row_of, figures, float(combine_bytes), batches, mark, grid, found)
    return Repeats(*found.tolist()) if found[0] > 0 else None


class _Open(NamedTuple):
    """By kind, of the batch that others may still join: its bytes (-1: none), how many joined, and when one is read."""

    held: np.ndarray
    joined: np.ndarray
    deadline: np.ndarray


@kernel
def _mark(
    may_wait: MayWait, row_of: np.ndarray, figures: np.ndarray, combine_bytes: float, batches: _Open, mark: np.ndarray
) -> None:
    """mark[layer], zeros, becomes equal for layers with batches that begin at the same results."""
    for i in range(may_wait.like.shape[0]):
        row = row_of[may_wait.like[i]]
        kind = int(figures[COMBINABLE, row]) - 1
        if kind >= 0:
            begins = _joins(
                batches, kind, figures[COUNTED_BYTES, row], may_wait.at[i], may_wait.wanted[i], combine_bytes
            )
            layer = may_wait.layer[i]
            if layer >= 0:
                mark[layer] = (mark[layer] ^ np.uint64(2 * may_wait.chain[i] + begins)) * MIXER


@kernel
def _repeats(
    may_wait: MayWait,
    row_of: np.ndarray,
    figures: np.ndarray,
    combine_bytes: float,
    batches: _Open,
    mark: np.ndarray,
    grid: int,
    found: np.ndarray,
) -> None:
    """Fills in `found`, zeros, with the fields of `Repeats` where layers are alike; scratch: see `_mark`.

    Where they are not so throughout, layers begin and end at multiples of `grid`. The first of them is left out of
    those that are alike: a batch that begins before them may end there.
    """
    _mark(may_wait, row_of, figures, combine_bytes, batches, mark)
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
