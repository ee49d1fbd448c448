"""What redistributions cost between labels: a table for each type of value, computed by the search's workers.

    f32[1024,4096] on {a: 4, b: 2}        to (0, 0)      (1, 0)      (1, 2)
    from (0, 0)                              0            0           0         a slice moves nothing
         (1, 0)                              3.1 ms       0           0         all_gather
         (17, 0)                             6.2 ms       3.1 ms      3.1 ms    all_reduce, reduce_scatter

There are many pairs of labels and few that a plan uses. So a table is made of single collectives over any set of axes,
each at the simulator's price, and of the cheapest sequences of them (`label_steps.py`):

    use, def    what a move before a use, or right after an op, costs at least, for the bound: links alone, and after an
                op no latency of reductions that may be combined
    plan        with local copies as they usually are, for the plan
    exact       what the simulator asks for the very plan that a lowering makes: asked for the pairs that a solution
                uses (`lowered_moves.py`), and put in the table in place of what stood there

The tables depend on nothing but the task, so that they are equal wherever they are made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autopart.core.op import TensorType
from autopart.core.stretch import Stretch
from autopart.costmodel.compiled.links.redistribution_seconds import gathers_combine
from autopart.costmodel.hardware.links import mesh_links
from autopart.search.ilp.label_steps import DEF, PLAN, USE, WAIT, move_seconds
from autopart.search.ilp.labels import Label, divides, is_pending, stretches_of
from autopart.search.ilp.least_latencies import most_saved_s
from autopart.search.ilp.lowered_moves import ExactJob, LeastJob, LeastMove, Pair
from autopart.search.ilp.stretch_ways import labels_on_the_way, stretch_ways

if TYPE_CHECKING:
    from autopart.search.evaluation.evaluator import SearchTask

__all__ = ["DEF", "PLAN", "USE", "WAIT", "PriceJob", "Prices", "moved_to", "price_jobs"]

MOST_LABELS = 700
"""A type of more labels has a table without sequences: what a single collective cannot do costs nothing at least."""


@dataclass(frozen=True)
class PriceJob:
    """A type of value and the labels it has; a worker answers with float64[4, labels, labels], a table for each of
    `USE`, `DEF`, `PLAN` and `WAIT`.

    Labels of uses that read stretches are the last: they are reached, not left.
    """

    type_: TensorType
    labels: tuple[Label, ...]

    def answer(self, task: SearchTask) -> np.ndarray:
        """The prices on the task's mesh."""
        mesh, stretches = task.partitioning.mesh, task.partitioning.table.stretches
        plain = [label for label in self.labels if not stretches_of(label)]
        place = {label: i for i, label in enumerate(plain)}
        tiles = move_seconds(self.type_, plain, mesh_links(mesh), sequences=len(plain) <= MOST_LABELS)
        found = np.full((4, len(self.labels), len(self.labels)), np.inf)
        found[:WAIT, : len(plain), : len(plain)] = tiles
        for j, label in enumerate(self.labels[len(plain) :], len(plain)):
            ways = stretch_ways(self.type_, label, stretches, mesh)
            found[:WAIT, : len(plain), j] = np.min([tiles[:, :, place[begin]] + s for begin, s in ways], axis=0)
        if gathers_combine(self.type_.shape, mesh_links(mesh).device):
            found[[USE, DEF]] = np.maximum(0.0, found[[USE, DEF]] - most_saved_s(mesh_links(mesh)))
        found[WAIT] = found[DEF]
        return found


def moved_to(source: Label, target: Label, stands: int) -> Label:
    """The label to which a value is moved for a reader that wants `target`: whole, where it may stand for parts.

    `stands` has the bit of each reduction whose parts a whole value may stand for.
    """
    return tuple(0 if s != t and is_pending(t) and stands >> t & 1 else t for s, t in zip(source, target, strict=True))


class _Table:
    """The prices of one type; `unplanned` bool[4, labels, labels]: moves that are not priced as they are planned."""

    def __init__(self, job: PriceJob, seconds: np.ndarray):
        self.labels, self.place = job.labels, {label: i for i, label in enumerate(job.labels)}
        self.seconds = seconds.copy()
        codes = np.array(job.labels, np.int64).reshape(len(job.labels), -1)
        changed = codes[:, None, :] != codes[None, :, :]
        awaits = np.array([[is_pending(code) for code in label] for label in job.labels]).reshape(codes.shape)
        lacks = (changed & awaits[None, :, :]).any(axis=2)
        self.unplanned = np.tile(changed.any(axis=2) & ~lacks, (len(seconds), 1, 1))


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of redistributions between labels, by type of value; make them with `Prices.of`.

    exact, planned    the moves whose prices in the plan's table, and in the bound's, are those of lowered plans
    """

    _tables: Mapping[TensorType, _Table]
    _known: dict[tuple[TensorType, int, int, int, int], np.ndarray] = field(default_factory=dict, repr=False)
    _places: dict[tuple[TensorType, int, int, int], np.ndarray] = field(default_factory=dict, repr=False)
    _kept: list[Sequence[Label]] = field(default_factory=list, repr=False)
    exact: set[Pair] = field(default_factory=set, repr=False)
    planned: set[LeastMove] = field(default_factory=set, repr=False)

    @staticmethod
    def of(jobs: Sequence[PriceJob], answers: Sequence[np.ndarray]) -> Prices:
        """The tables from what workers answered."""
        return Prices({job.type_: _Table(job, answer) for job, answer in zip(jobs, answers, strict=True)})

    def learn(self, jobs: Sequence[ExactJob], answers: Sequence[tuple[float, ...]]) -> None:
        """Puts exact prices in the plan's tables."""
        for job, answer in zip(jobs, answers, strict=True):
            table = self._tables[job.type_]
            for (source, target), seconds in zip(job.pairs, answer, strict=True):
                table.seconds[PLAN, table.place[source], table.place[target]] = seconds
                self.exact.add((job.type_, source, target))
        self._known.clear()

    def learn_least(self, jobs: Sequence[LeastJob], answers: Sequence[tuple[float, ...]]) -> None:
        """Puts the least prices of plans in the bound's tables, wherever they are higher."""
        for job, answer in zip(jobs, answers, strict=True):
            table = self._tables[job.type_]
            for (source, target, row), least in zip(job.moves, answer, strict=True):
                at = row, table.place[source], table.place[target]
                table.seconds[at] = max(table.seconds[at], least)
                table.unplanned[at] = False
                self.planned.add((job.type_, source, target, row))
        self._known.clear()

    def seconds(
        self, type_: TensorType, sources: Sequence[Label], targets: Sequence[Label], which: int, stands: int = 0
    ) -> np.ndarray:
        """float64[sources, targets]: seconds of each move (`moved_to`); `which` is a row of the tables.

        By identity: nodes share their tuples of labels, which are kept so that no other takes their place.
        """
        key = (type_, id(sources), id(targets), stands, which)
        if key not in self._known:
            place = self._moves(type_, sources, targets, stands)
            self._known[key] = self._tables[type_].seconds[which].reshape(-1)[place]
        return self._known[key]

    def unplanned(
        self,
        type_: TensorType,
        sources: Sequence[Label],
        targets: Sequence[Label],
        which: int,
        stands: int,
        pairs: tuple[np.ndarray, ...],
    ) -> np.ndarray:
        """int64[pairs]: a number for the move of each pair of a source and a target; -1 where no lowering makes it, or
        its least price is that of its plan."""
        place = self._moves(type_, sources, targets, stands)
        place = np.broadcast_to(place, (len(sources), len(targets)))[pairs]
        return np.where(self._tables[type_].unplanned[which].reshape(-1)[place], place, -1)

    def move_at(self, type_: TensorType, number: int) -> tuple[Label, Label]:
        """The source and the target of that number."""
        labels = self._tables[type_].labels
        return labels[number // len(labels)], labels[number % len(labels)]

    def _moves(self, type_: TensorType, sources: Sequence[Label], targets: Sequence[Label], stands: int) -> np.ndarray:
        """int64[sources, targets]: where each move stands in the type's flat table."""
        key = (type_, id(sources), id(targets), stands)
        if key not in self._places:
            place = self._tables[type_].place
            rows = np.array([place[s] for s in sources], np.int64)[:, None] * len(place)
            if stands and any(any(map(is_pending, t)) for t in targets):
                columns = np.array([[place[moved_to(s, t, stands)] for t in targets] for s in sources], np.int64)
            else:
                columns = np.array([place[t] for t in targets], np.int64)[None, :]
            self._places[key] = rows + columns
            self._kept.extend((sources, targets))
        return self._places[key]


def price_jobs(
    labels: Mapping[TensorType, Iterable[Label]], sizes: Sequence[int], stretches: Sequence[tuple[int, Stretch]]
) -> list[PriceJob]:
    """A job for each type: of the labels that nodes give it, and those on the way between them."""
    return [PriceJob(type_, _universe(type_, list(given), sizes, stretches)) for type_, given in labels.items()]


def _universe(
    type_: TensorType, given: list[Label], sizes: Sequence[int], stretches: Sequence[tuple[int, Stretch]]
) -> tuple[Label, ...]:
    """The labels that are given; whole where they await a reduction; all that divide the type, if they are not many."""
    reading = [label for label in given if stretches_of(label)]
    given = [label for label in given if not stretches_of(label)]
    given += [begin for label in reading for begin, _ in labels_on_the_way(label, stretches)]
    found = dict.fromkeys(given)
    for label in given:
        if any(map(is_pending, label)):
            found.update(dict.fromkeys(itertools.product(*((c, 0) if is_pending(c) else (c,) for c in label))))
    codes = [
        sorted({*range(len(type_.shape) + 1), *(c for c in column if is_pending(c))})
        for column in zip(*found, strict=True)
    ]
    if math.prod(map(len, codes)) <= MOST_LABELS:
        found.update(dict.fromkeys(p for p in itertools.product(*codes) if divides(type_.shape, p, sizes)))
    return (*found, *reading)
