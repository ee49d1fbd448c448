"""StableHLO of the step from a tile to the stretch that a use reads.

    every stretch as far from its tile   concatenate(permuted end of the tile before, tile, permuted start of the next)
    so, and there are two devices        the same, of one permute in which they swap their ends
    every stretch one of two pieces      the one that the device was sent, or keeps
    elements in any order                those of the tile and of what was sent, at places read from a table
    anything else                        zeros, and each piece written where it belongs, at places read from a table
    the dim is whole                     padded with zeros where stretches reach beyond it, then a slice

What no device sends arrives as zeros, which is what lies outside the dim.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from autopart.core.doors.jax_internals import ir
from autopart.core.mesh import Mesh
from autopart.core.mlir_values import MlirValues
from autopart.spmd.redistribution.rounds import Round
from autopart.spmd.redistribution.stretch_step import StretchStep

MOST_RUNS = 8
"""So many runs of elements are sliced; of more, elements are looked up."""


class StretchEmission:
    """Emits one step at MLIR's insertion point; `slices` has the dynamic slices that it made.

    `position(axis)` is the i32 scalar of where a device stands on an axis; `permute(value, pairs)` a
    collective_permute between pairs of devices.
    """

    def __init__(
        self,
        step: StretchStep,
        mesh: Mesh,
        position: Callable[[int], ir.Value],
        permute: Callable[[ir.Value, np.ndarray], ir.Value],
    ):
        self._step, self._sizes, self._coordinate, self._permute = step, mesh.axis_sizes, position, permute
        self._axes = [mesh.index(axis.name) for axis in step.order]
        self._starts = [step.stretch.first(step.ways, p) for p in range(step.ways)]
        self._length = step.left_shape[step.dim]
        self._values = MlirValues()

    @property
    def slices(self) -> list[ir.Operation]:
        """The dynamic slices that were emitted."""
        return [op for op in self._values.made if op.name == "stablehlo.dynamic_slice"]

    def emit(self, value: ir.Value) -> ir.Value:
        """The stretch, of shape `step.left_shape`, from what a device holds."""
        step, tile = self._step, self._step.read[self._step.dim]
        if step.stretch.order:
            return self._ordered(value)
        if step.whole:
            return self._sliced(value)
        if step.stretch.times > 1:
            return self._written(value)
        if all(start == self._starts[0] + p * tile for p, start in enumerate(self._starts)):
            return self._swapped(value) if self._swaps() else self._joined(value, self._starts[0])
        if len(step.rounds) == 1 and step.rounds[0].put == (0,) * step.ways:
            return self._received(value, step.rounds[0])
        if len(step.rounds) == 2 and all(
            one.length == self._length and {*one.put} <= {0, -one.length} for one in step.rounds
        ):
            return self._chosen(value)
        return self._written(value)

    # ---- forms

    def _sliced(self, value: ir.Value) -> ir.Value:
        """Of a dim that is whole."""
        if self._step.stretch.times > 1:
            return self._of_each_step(value)
        size = self._step.read[self._step.dim]
        low, high = max(0, -min(self._starts)), max(0, max(self._starts) + self._length - size)
        if self._step.stretch.wraps:
            ends = [self._static_slice(value, a, b) if b > a else value for a, b in ((size - low, size), (0, high))]
        else:
            ends = [self._zeros(value, low), self._zeros(value, high)]
        parts = [ends[0], value, ends[1]]
        padded = self._side_by_side([part for part, n in zip(parts, (low, 1, high), strict=True) if n])
        return self._dynamic_slice(padded, self._looked_up([s + low for s in self._starts]), self._length)

    def _of_each_step(self, value: ir.Value) -> ir.Value:
        """Of a dim that is seen as so many steps, the rows of each."""
        stretch, dim, shape = self._step.stretch, self._step.dim, list(self._step.read)
        split = [*shape[:dim], stretch.times, shape[dim] // stretch.times, *shape[dim + 1 :]]
        sizes = [*split[: dim + 1], stretch.piece(self._step.ways), *split[dim + 2 :]]
        starts = [self._values.constant(0, "i32") for _ in split]
        starts[dim + 1] = self._looked_up(self._starts)
        rows = self._values.dynamic_slice(self._values.reshape(value, split), starts, sizes)
        return self._values.reshape(rows, self._step.left_shape)

    def _ordered(self, value: ir.Value) -> ir.Value:
        """Of elements in any order, from its tile and from the messages of others; or from all."""
        rounds, places = self._step.ordered
        sent = [self._permute(self._elements(value, one.taken), self._devices(one.pairs)) for one in rounds]
        return self._elements(self._side_by_side([value, *sent]), places)

    def _elements(self, value: ir.Value, table: Sequence[Sequence[int]]) -> ir.Value:
        """The elements that a table lists for each position: a few runs, or a look-up."""
        places, dim, values = np.array(table), self._step.dim, self._values
        ends = [0, *(np.flatnonzero((np.diff(places) != 1).any(axis=0)) + 1).tolist(), places.shape[1]]
        if len(ends) - 1 <= MOST_RUNS:
            runs = ((self._looked_up(places[:, a].tolist()), b - a) for a, b in itertools.pairwise(ends))
            return self._side_by_side([self._dynamic_slice(value, start, length) for start, length in runs])
        known = values.constant(places.tolist(), "i32", places.shape)
        start = [self._place(), values.constant(0, "i32")]
        own = values.reshape(values.dynamic_slice(known, start, [1, places.shape[1]]), places.shape[1:])
        return values.take(value, own, dim)

    def _joined(self, tile: ir.Value, distance: int) -> ir.Value:
        """Pieces of the tiles before, of its own and of those behind, for stretches that begin `distance` from it."""
        size, ways, end, parts = self._step.read[self._step.dim], self._step.ways, distance + self._length, []
        for apart in range(distance // size, -(-end // size)):
            begin, stop = max(distance - apart * size, 0), min(end - apart * size, size)
            pairs = [(p + apart, p) for p in range(ways) if 0 <= p + apart < ways]
            if self._step.stretch.wraps:
                pairs = [((p + apart) % ways, p) for p in range(ways)]
            if not pairs:
                parts.append(self._zeros(tile, stop - begin))
                continue
            piece = self._static_slice(tile, begin, stop)
            parts.append(self._permute(piece, self._devices(pairs)) if apart % ways else piece)
        return self._side_by_side(parts)

    def _swaps(self) -> bool:
        """True if two devices send each other their ends in one round, and have nothing on the other side."""
        if self._step.stretch.wraps:
            return False
        moves = [one for one in self._step.rounds if one.moves]
        return self._step.ways == 2 and len(moves) == 1 and len(moves[0].pairs) == 2

    def _swapped(self, tile: ir.Value) -> ir.Value:
        """Between two devices: the first has what it received behind its tile, the other before it."""
        size, values = self._step.read[self._step.dim], self._values
        [swap] = [one for one in self._step.rounds if one.moves]
        received, low = self._received(tile, swap), -self._starts[0]
        high = self._length - low - size
        ends = (self._static_slice(received, swap.length - low, swap.length), self._static_slice(received, 0, high))
        parts = []
        for place, end in zip((1, 0), ends, strict=True):
            is_there = values.compare(self._looked_up([0, 1]), values.constant(place, "i32"), "EQ")
            parts.append(values.select(is_there, end, self._zeros(end, values.type_of(end).shape[self._step.dim])))
        return self._side_by_side([parts[0], tile, parts[1]])

    def _chosen(self, tile: ir.Value) -> ir.Value:
        """The one piece of each device; what no round gives one comes as zeros, from the last."""
        *others, last = sorted(self._step.rounds, key=lambda one: one.moves)
        stretch = self._received(tile, last)
        for one in others:
            has = self._looked_up([int(put == 0) for put in one.put])
            is_there = self._values.compare(has, self._values.constant(1, "i32"), "EQ")
            stretch = self._values.select(is_there, self._received(tile, one), stretch)
        return stretch

    def _written(self, tile: ir.Value) -> ir.Value:
        """Each round's pieces written over zeros, with room for what reaches beyond the stretch."""
        step = self._step
        room = max((one.length for one in step.rounds), default=0)
        stretch = self._zeros(tile, self._length + 2 * room)
        for one in step.rounds:
            starts = self._along(self._looked_up([room + put for put in one.put]))
            stretch = self._values.dynamic_update_slice(stretch, self._received(tile, one), starts)
        return self._static_slice(stretch, room, room + self._length)

    def _received(self, tile: ir.Value, one: Round) -> ir.Value:
        """The piece that a device is sent in a round, or keeps."""
        if len(set(one.taken)) == 1:
            piece = self._static_slice(tile, one.taken[0], one.taken[0] + one.length)
        else:
            piece = self._dynamic_slice(tile, self._looked_up(one.taken), one.length)
        return self._permute(piece, self._devices(one.pairs)) if one.moves else piece

    # ---- devices

    def _devices(self, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """int64[pairs, 2]: every pair of positions along the dim, among the devices that agree in all else."""
        rest = [a for a in range(len(self._sizes)) if a not in self._axes]
        grid = np.arange(np.prod(self._sizes)).reshape(self._sizes).transpose(*self._axes, *rest)
        grid = grid.reshape(self._step.ways, -1)
        found = np.concatenate([np.stack([grid[giver], grid[taker]], axis=1) for giver, taker in pairs])
        return np.ascontiguousarray(found[np.argsort(found[:, 0], kind="stable")], np.int64)

    def _looked_up(self, numbers: Sequence[int]) -> ir.Value:
        """i32 scalar: of one number per position along the dim, the device's."""
        values = self._values
        if len(set(numbers)) == 1:
            return values.constant(numbers[0], "i32")
        table = values.constant(list(numbers), "i32", [len(numbers)])
        return values.reshape(values.dynamic_slice(table, [self._place()], [1]), ())

    def _place(self) -> ir.Value:
        """i32 scalar: the device's position along the dim."""
        values = self._values
        place = values.constant(0, "i32")
        for axis in self._axes:
            size = values.constant(self._sizes[axis], "i32")
            place = values.binary("add", values.binary("multiply", place, size), self._coordinate(axis))
        return place

    # ---- along the dim

    def _along(self, start: ir.Value) -> list[ir.Value]:
        zero = self._values.constant(0, "i32")
        return [start if d == self._step.dim else zero for d in range(len(self._step.read))]

    def _dynamic_slice(self, value: ir.Value, start: ir.Value, length: int) -> ir.Value:
        sizes = list(self._values.type_of(value).shape)
        sizes[self._step.dim] = length
        return self._values.dynamic_slice(value, self._along(start), sizes)

    def _static_slice(self, value: ir.Value, begin: int, end: int) -> ir.Value:
        starts, limits = [0] * len(self._step.read), list(self._values.type_of(value).shape)
        if end - begin == limits[self._step.dim]:
            return value
        starts[self._step.dim], limits[self._step.dim] = begin, end
        return self._values.slice(value, starts, limits)

    def _side_by_side(self, parts: Sequence[ir.Value]) -> ir.Value:
        return parts[0] if len(parts) == 1 else self._values.concatenate(parts, self._step.dim)

    def _zeros(self, like: ir.Value, length: int) -> ir.Value:
        type_ = self._values.type_of(like)
        shape = list(type_.shape)
        shape[self._step.dim] = length
        return self._values.broadcast(self._values.constant(0, type_.dtype), shape)
