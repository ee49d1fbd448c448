"""What a lowering's own moves cost at least: exact prices for the pairs of labels that decide a bound.

    table     (1, 0) -> (0, 2)     0.4 ms     some sequence of collectives, whoever would emit it
    exact     (1, 0) -> (0, 2)     3.1 ms     the very plan, the cheapest over the orders of axes on a dim

A bound is only as good as the cheapest way around what a lowering must do, so the pairs of labels that a choice may
use are priced as they are planned, as far as the time allows. A move before a use is one plan. After an op there may be
two: to the layout in which the value waits, and from there to its reader.

A use that reads stretches has the plan to the tile, or to the whole dim, and the step from there.

    (17, 2) -> (1, 0)     by way of (1, 2), (1, 0), (0, 2), (0, 0), (2, 0): what is pending is reduced into what the
                          reader wants, into what an action tiles, or whole; other axes wait as they were left, as they
                          are read, or whole where an action keeps them
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from autopart.core.mesh import Mesh
from autopart.core.op import TensorType
from autopart.core.stretch import Stretch
from autopart.costmodel.compiled.links.plan_terms import (
    DeviceFigures,
    PlanTerms,
    ShapeClass,
    Sized,
    plan_terms,
    shape_class,
    shape_of,
    terms_seconds,
)
from autopart.costmodel.compiled.links.redistribution_costs import plan_cost
from autopart.costmodel.compiled.links.redistribution_seconds import gathers_combine
from autopart.costmodel.hardware.links import Links, mesh_links
from autopart.costmodel.lower_for_device import forms_for
from autopart.search.ilp.label_steps import DEF, WAIT
from autopart.search.ilp.labels import (
    Label,
    distributed_types,
    divides,
    in_tiles,
    is_pending,
    stretches_of,
    without_ones,
)
from autopart.spmd.redistribution import DistributedType, Plan, plan
from autopart.spmd.redistribution.forms import EmittedCost
from autopart.spmd.redistribution.stretch_step import with_stretches

if TYPE_CHECKING:
    from autopart.search.evaluation.evaluator import SearchTask

PAIRS_PER_JOB, LEAST_PER_JOB = 50, 1000
"""Pairs that a worker prices at a time: a tenth of a second; and for a bound, where they have parts in common."""

TYPES, MOVES = 1024, 1 << 16
"""Types of values whose prices a worker remembers, and moves between labels whose plans it does; a large program has
hundreds and tens of thousands."""

Pair = tuple[TensorType, Label, Label]
"""A move of a value of a type from one label to another."""

LeastMove = tuple[TensorType, Label, Label, int]
"""The same with the row of the tables by which it counts for the bound."""


@dataclass(frozen=True)
class PlannedMoves:
    """Prices of the plans that a lowering makes of values of one type; make it with `PlannedMoves.of`."""

    type_: TensorType
    mesh: Mesh
    links: Links
    cost: Any
    forms: EmittedCost | None
    stretches: tuple[tuple[int, Stretch], ...] = ()
    _known: dict[tuple[Label, Label], tuple[float, float]] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(type_: TensorType, task: SearchTask) -> PlannedMoves:
        """Those of a search's lowerings; a worker that is asked again knows the prices that it has told."""
        mesh, stretches = task.partitioning.mesh, task.partitioning.table.stretches
        return _planned_moves(type_, mesh, task.options.redistribution_cost, tuple(stretches))

    def seconds(self, source: Label, target: Label) -> tuple[float, float]:
        """(seconds, seconds without the latency of a reduction that may be combined) between the two layouts of two
        labels between which they are least; infinite where the target awaits what the source does not."""
        if (source, target) not in self._known:
            self._known[source, target] = self._priced(source, target)
        return self._known[source, target]

    def _priced(self, source: Label, target: Label) -> tuple[float, float]:
        if any(is_pending(t) and s != t for s, t in zip(source, target, strict=True)):
            return math.inf, math.inf
        whole = combined = math.inf
        if self._class is not None and not stretches_of(target):
            ends = (without_ones(self.type_.shape, label) for label in (source, target))
            for terms in _move_terms(self._class, *ends, self.links):
                seconds, saved_s = terms_seconds(terms, self._sized, self._figures)
                whole, combined = min(whole, seconds), min(combined, seconds - saved_s)
            return whole, combined
        for from_ in distributed_types(self.type_.shape, source, self.mesh):
            for to in distributed_types(self.type_.shape, in_tiles(target), self.mesh):
                priced = plan_cost(self._plan(from_, to, target), self.type_.element_bytes, self.links)
                found = priced.seconds + priced.copy_s
                whole = min(whole, found)
                combined = min(combined, found - (priced.saved_s if priced.combinable else 0.0))
        return whole, combined

    @cached_property
    def _class(self) -> ShapeClass | None:
        """The arrays that have the same plans as these; None where plans are not by Figure 11, or move nothing."""
        if self.cost != "elements" or self.forms is None or 0 in self.type_.shape:
            return None
        return shape_class(self.type_.shape, tuple(self.mesh.shape.items()))

    @cached_property
    def _sized(self) -> Sized:
        return Sized.of(self.type_.shape, self.type_.element_bytes, self.links)

    @cached_property
    def _figures(self) -> DeviceFigures:
        return DeviceFigures.of(self.links)

    def _plan(self, source: DistributedType, tiles: DistributedType, target: Label) -> Plan:
        element_bytes, cost, forms = self.type_.element_bytes, self.cost, self.forms

        def plan_to(there: DistributedType) -> Plan:
            return plan(source, there, element_bytes=element_bytes, cost=cost, forms=forms)

        read = [self.stretches[number] for number in stretches_of(target)]
        return with_stretches(plan_to, tiles, read, element_bytes, cost, forms) if read else plan_to(tiles)

    def least(self, source: Label, target: Label, row: int) -> float:
        """Seconds of a move at least, by the row of the tables that it counts in."""
        if row == DEF:
            return self.after_op(source, target)
        return self.seconds(source, target)[row == WAIT or self._gathers_combine]

    @cached_property
    def _gathers_combine(self) -> bool:
        return gathers_combine(self.type_.shape, self.links.device)

    def after_op(self, source: Label, target: Label) -> float:
        """Seconds from where an op leaves a value to its one reader, by whatever layout the value waits in; without
        the latency of a reduction or a gather that may be combined."""
        best, sizes = math.inf, self.mesh.axis_sizes
        between = (_between(*codes, len(self.type_.shape)) for codes in zip(source, target, strict=True))
        for waits in itertools.product(*between):
            if divides(self.type_.shape, waits, sizes):
                first = self.seconds(source, waits)[True] if waits != source else 0.0
                if first < best:
                    second = self.seconds(waits, target)[self._gathers_combine] if waits != target else 0.0
                    best = min(best, first + second)
        return best


@lru_cache(maxsize=MOVES)
def _move_terms(class_: ShapeClass, source: Label, target: Label, links: Links) -> tuple[PlanTerms, ...]:
    """The plan of arrays of a class between each two layouts of two labels."""
    shape, mesh = shape_of(class_), links.mesh
    ends = itertools.product(_layouts(shape, source, mesh), _layouts(shape, target, mesh))
    return tuple(plan_terms(class_, from_, to, links) for from_, to in ends)


@lru_cache(maxsize=MOVES)
def _layouts(shape: tuple[int, ...], label: Label, mesh: Mesh) -> tuple[DistributedType, ...]:
    return tuple(distributed_types(shape, label, mesh))


@lru_cache(maxsize=TYPES)
def _planned_moves(
    type_: TensorType, mesh: Mesh, cost: Any, stretches: tuple[tuple[int, Stretch], ...]
) -> PlannedMoves:
    return PlannedMoves(type_, mesh, mesh_links(mesh), cost, forms_for(mesh), stretches)


def _between(source: int, target: int, dims: int) -> list[int]:
    """What an axis may do while a value of so many dims waits that it leaves as `source` and reads as `target`."""
    (tile,) = in_tiles((target,))
    if is_pending(source) and source != tile:
        return [tile, *(code for code in range(dims + 1) if code != tile)]
    return list(dict.fromkeys((source, tile, 0)))


@dataclass(frozen=True)
class ExactJob:
    """Moves of one type of value; a worker answers with the seconds of each as it is lowered."""

    type_: TensorType
    pairs: tuple[tuple[Label, Label], ...]

    def answer(self, task: SearchTask) -> tuple[float, ...]:
        """The prices on the task's mesh."""
        moves = PlannedMoves.of(self.type_, task)
        return tuple(moves.seconds(source, target)[0] for source, target in self.pairs)


@dataclass(frozen=True)
class LeastJob:
    """Moves of one type of value: source, target, row of the tables; a worker answers with the least seconds of all."""

    type_: TensorType
    moves: tuple[tuple[Label, Label, int], ...]

    def answer(self, task: SearchTask) -> tuple[float, ...]:
        """The prices on the task's mesh."""
        moves = PlannedMoves.of(self.type_, task)
        return tuple(moves.least(*move) for move in self.moves)


def exact_jobs(pairs: Iterable[Pair]) -> list[ExactJob]:
    """What workers are asked for: each pair once, in an order that depends on nothing else."""
    return [ExactJob(type_, part) for type_, part in _parts(pairs, PAIRS_PER_JOB)]


def least_jobs(moves: Iterable[LeastMove]) -> list[LeastJob]:
    """The same for the bound."""
    return [LeastJob(type_, part) for type_, part in _parts(moves, LEAST_PER_JOB)]


def _parts(moves: Iterable[tuple[Any, ...]], most: int) -> Iterator[tuple[TensorType, tuple[Any, ...]]]:
    of: dict[TensorType, dict[tuple[Any, ...], None]] = {}
    for type_, *move in moves:
        of.setdefault(type_, {})[tuple(move)] = None
    for type_, wanted in of.items():
        in_order = sorted(wanted)
        for i in range(0, len(in_order), most):
            yield type_, tuple(in_order[i : i + most])
