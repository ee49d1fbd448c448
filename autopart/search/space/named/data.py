"""Schedules that divide data: each device computes on its share of the inputs, with all of the weights.

DP       every input on its batch dim            one all_reduce per gradient
Context  tokens on another dim, the sequence     keys and values are gathered for a device's share of queries
Spatial  images on another dim                   borders are exchanged where windows overlap
Edges    the edges of a graph                    sums over a node's edges are all_reduced
Nodes    its nodes                               what edges read of nodes is gathered
Graph    both                                    both
Others   inputs with rows of their own           as DP
Rows     rows looked up in the inputs' rows      a reduce_scatter of these; as DP from there
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from autopart.core.layout import LAST_TILE
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution
from autopart.core.table.conflicts import undecided
from autopart.core.table.looked_up_rows import tile_looked_up
from autopart.core.table.loop_nests import tiling
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named.graphs import row_indices
from autopart.search.space.named.inputs import Inputs, bytes_in_sums, other_dims, other_inputs, scratch
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule

_ROWS: WeakKeyDictionary[DecisionSpace, frozenset[int]] = WeakKeyDictionary()
"""The arguments that say which rows of others to read, as long as somebody has the space."""

NOTHING: tuple[Decisions, Decisions] = ((), ())

MOST_LOOKED_UP = 3
"""Inputs that are tried where no look-up is behind the batch."""

MOST_CONFLICTS = 8
"""Groups of ops in conflict that a sequence dim is carried through, one after the other."""


@register_named_schedule("DP")
@dataclass(frozen=True)
class DataParallelism(NamedSchedule):
    """Each device computes on its share of the batch."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            if _graph(space, axis) is None:
                yield Named(f"DP({axis})", Inputs.of(space, axis).batch, (axis,))


@register_named_schedule("Rows")
@dataclass(frozen=True)
class LookedUpRows(NamedSchedule):
    """As DP, or Edges; and what is looked up in rows of a device's share by whole indices is divided anew."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            batch = Inputs.of(space, axis).batch
            for first in (batch, *((d,) for d in _largest_inputs(space, axis))):
                with _decided(space, first) as partitioning:
                    tiles = tile_looked_up(partitioning, axis)
                if tiles:
                    rows = (Decision("value", tile.value, tile.dim, axis) for tile in tiles)
                    yield Named(f"Rows({axis})", (*first, *rows), (axis,))
                    break


def _largest_inputs(space: DecisionSpace, axis: str) -> Decisions:
    """Tiles of the first dim of what the program does not update, the largest first."""
    updated = set(space.facts.updated.tolist())
    probes = [p.decision for p in space.probes if p.decision.axis == axis and p.decision.dim == 0]
    data = [d for d in probes if updated.isdisjoint(space.values(d).tolist())]
    return tuple(sorted(data, key=lambda d: -space.facts.value_bytes[space.values(d)].sum())[:MOST_LOOKED_UP])


@register_named_schedule("Others")
@dataclass(frozen=True)
class OtherInputs(NamedSchedule):
    """Each device computes on its share of inputs that the batch does not reach."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            if _graph(space, axis) is None:
                for probe in other_inputs(space, Inputs.of(space, axis), axis)[:1]:
                    yield Named(f"Others({axis})", (probe.decision,), (axis,))


@register_named_schedule("Edges")
@dataclass(frozen=True)
class EdgeParallelism(NamedSchedule):
    """Each device computes on its share of a graph's edges."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            edges, _ = _graph(space, axis) or NOTHING
            if edges:
                yield Named(f"Edges({axis})", edges, (axis,))


@register_named_schedule("Nodes")
@dataclass(frozen=True)
class NodeParallelism(NamedSchedule):
    """Each device computes on its share of a graph's nodes."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            _, nodes = _graph(space, axis) or NOTHING
            if nodes:
                yield Named(f"Nodes({axis})", nodes, (axis,))


@register_named_schedule("Graph")
@dataclass(frozen=True)
class GraphParallelism(NamedSchedule):
    """Each device computes on its share of a graph's edges and of its nodes."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            edges, nodes = _graph(space, axis) or NOTHING
            if edges and nodes:
                yield Named(f"Graph({axis})", (*edges, *nodes), (axis,))


@register_named_schedule("Context")
@dataclass(frozen=True)
class ContextParallelism(NamedSchedule):
    """Each device computes on its share of the sequence."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        if not _has_convolution(space):
            yield from _on_another_dim(space, "Context")


@register_named_schedule("Spatial")
@dataclass(frozen=True)
class SpatialParallelism(NamedSchedule):
    """Each device computes on its share of each image."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        if _has_convolution(space):
            yield from _on_another_dim(space, "Spatial")


def _on_another_dim(space: DecisionSpace, name: str) -> Iterator[Named]:
    for axis in space.axes:
        inputs = Inputs.of(space, axis)
        others = (p.decision for p in other_dims(space, inputs, axis) if not _tiles_batch(space, inputs, p.decision))
        for decision in itertools.islice(others, 1):
            yield Named(f"{name}({axis})", carried_through(space, decision), (axis,))


def _tiles_batch(space: DecisionSpace, inputs: Inputs, decision: Decision) -> bool:
    """True if a tile of another dim, where an op needs all of that, is exchanged for one of the batch, and all
    follows."""
    with _decided(space, (decision,)) as partitioning:
        axis = partitioning.mesh.index(decision.axis)
        return any(tiling(partitioning.nests, value, axis) == dim for value, dim in inputs.dims.items())


def carried_through(space: DecisionSpace, decision: Decision) -> Decisions:
    """The decision, and before it one for each group of ops in conflict behind it: the dim that leaves fewest sums.

    In attention the scores have rows and columns of the same sequence, and both could be tiled. Tiled rows leave
    nothing to add up, since softmax runs along a row. They are tiled before the sequence is: after it, the tiles of the
    values have reached the columns, and the conflict stays.
    """
    found: Decisions = (decision,)
    seen: list[tuple[tuple[int, float], Decisions]] = [(_conflicts_and_sums(space, found), found)]
    for _ in range(MOST_CONFLICTS):
        ways: list[Decisions] = [(d, *found) for d in _choices(space, found) if d not in found]
        if not ways:
            break
        left = [(_conflicts_and_sums(space, way), way) for way in ways]
        seen.append(min(left, key=lambda row: row[0][::-1]))
        found = seen[-1][1]
    return min(seen, key=lambda row: row[0])[1]


def _choices(space: DecisionSpace, decisions: Decisions) -> list[Decision]:
    """The dims that the mappings tile of the first group of ops in conflict after some decisions."""
    axis = decisions[-1].axis
    with _decided(space, decisions) as partitioning:
        conflicts = undecided(partitioning, space.start.mesh.index(axis))
    for op, mappings in conflicts.candidates(space.start):
        results = space.program.results_of(op)
        if len(results):
            dims = sorted({m.results[0] for m in mappings if m.results[0] < LAST_TILE})
            legal = [d for d in dims if not space.start.why_not_tile(int(results[0]), d, axis)]
            if legal:
                return [Decision("tile_group", int(space.facts.groups.of[results[0]]), d, axis) for d in legal]
    return []


def _conflicts_and_sums(space: DecisionSpace, decisions: Decisions) -> tuple[int, float]:
    """How many ops are in conflict after some decisions, and the bytes of pending sums."""
    with _decided(space, decisions) as partitioning:
        sums = bytes_in_sums(partitioning, space.facts.value_bytes, decisions[-1].axis)
        axes = range(len(partitioning.mesh.axis_names))
        return sum(space.facts.op_count(undecided(partitioning, axis).op) for axis in axes), sums


@contextmanager
def _decided(space: DecisionSpace, decisions: Decisions) -> Generator[Partitioning]:
    with scratch(space) as partitioning:
        for decision in decisions:
            space.apply(partitioning, decision)
        yield partitioning


def _has_convolution(space: DecisionSpace) -> bool:
    return any(isinstance(traits_of(spec), Convolution) for spec in space.program.specs)


def _graph(space: DecisionSpace, axis: str) -> tuple[Decisions, Decisions] | None:
    """What tiles a graph's edges, and what its nodes; None where the data is no graph.

    Either may be what divides most work. Edges say which rows of the others to read.
    """
    if space not in _ROWS:
        _ROWS[space] = row_indices(space.program, space.facts.tied)
    rows, inputs = _ROWS[space], Inputs.of(space, axis)
    others = [probe.decision for probe in other_inputs(space, inputs, axis)[:1]]
    if inputs.arguments & rows:
        return inputs.batch, tuple(others)
    if any(rows.intersection(space.values(d).tolist()) for d in others):
        return tuple(others), inputs.batch
    return None
