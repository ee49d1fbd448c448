"""Schedules that divide data: each device computes on its share of the inputs, with all of the weights.

DP       every input on its batch dim            one all_reduce per gradient
Context  tokens on another dim, the sequence     keys and values are gathered for a device's share of queries
Spatial  images on another dim                   borders are exchanged where windows overlap
Edges    the edges of a graph                    sums over a node's edges are all_reduced
Nodes    its nodes                               what edges read of nodes is gathered
Graph    both                                    both
Others   inputs with rows of their own           as DP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from autopart.core.layout import LAST_TILE
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution
from autopart.core.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named.graphs import row_indices
from autopart.search.space.named.inputs import Inputs, bytes_in_sums, other_dims, other_inputs, scratch
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule

_ROWS: WeakKeyDictionary[DecisionSpace, frozenset[int]] = WeakKeyDictionary()
"""The arguments that say which rows of others to read, as long as somebody has the space."""

NOTHING: tuple[Decisions, Decisions] = ((), ())

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
        for probe in other_dims(space, Inputs.of(space, axis), axis)[:1]:
            yield Named(f"{name}({axis})", carried_through(space, probe.decision), (axis,))


def carried_through(space: DecisionSpace, decision: Decision) -> Decisions:
    """The decision, and one for each group of ops in conflict behind it: the dim that leaves fewest sums.

    In attention the scores have rows and columns of the same sequence, and both could be tiled. Tiled rows leave
    nothing to add up, since softmax runs along a row.
    """
    found = [decision]
    with scratch(space) as partitioning:
        space.apply(partitioning, decision)
        for _ in range(MOST_CONFLICTS):
            choices = _choices(space, partitioning, decision.axis)
            if not choices:
                break
            found.append(min(choices, key=lambda d: _left_over(space, partitioning, d)))
            space.apply(partitioning, found[-1])
    return tuple(found)


def _choices(space: DecisionSpace, partitioning: Partitioning, axis: str) -> list[Decision]:
    """The dims that the mappings in conflict of the first group of ops tile."""
    for op, index, mappings in partitioning.undecided():
        results = space.program.results_of(op)
        if index != partitioning.mesh.index(axis) or not len(results):
            continue
        group = int(space.facts.groups.of[results[0]])
        dims = sorted({m.results[0] for m in mappings if m.results[0] < LAST_TILE})
        legal = [d for d in dims if not partitioning.why_not_tile(int(results[0]), d, axis)]
        if legal:
            return [Decision("tile_group", group, d, axis) for d in legal]
    return []


def _left_over(space: DecisionSpace, partitioning: Partitioning, decision: Decision) -> tuple[float, int]:
    """(bytes of pending sums, conflicts) after a decision, which is undone again."""
    mark = partitioning.mark()
    space.apply(partitioning, decision)
    cost = bytes_in_sums(partitioning, space.facts.value_bytes, decision.axis), len(partitioning.undecided())
    partitioning.undo(mark)
    return cost


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
