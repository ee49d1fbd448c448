"""What redistributions cost between labels: a table for each type of value, computed by the search's workers.

    f32[1024,4096] on {a: 4, b: 2}        to (0, 0)      (1, 0)      (1, 2)
    from (0, 0)                              0            0           0         a slice moves nothing
         (1, 0)                              3.1 ms       0           0         all_gather
         (17, 0)                             6.2 ms       3.1 ms      3.1 ms    all_reduce, reduce_scatter

An entry is what the simulator asks for the cheapest plan between any two layouts of the two labels (`labels.py`): the
forms of its collectives that a lowering chooses, and their local copies.
`spared` is the latency in it that a combined collective would not pay. The tables depend on nothing but the task, so
that they are equal wherever they are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autopart.core.mesh import Mesh
from autopart.core.op import TensorType
from autopart.costmodel.hardware.links import mesh_links
from autopart.costmodel.lower_for_device import forms_for
from autopart.costmodel.simulator.redistribution_costs import plan_cost
from autopart.search.ilp.labels import Label, distributed_types, is_pending
from autopart.spmd.redistribution import plan
from autopart.spmd.redistribution.forms import EmittedCost

if TYPE_CHECKING:
    from autopart.search.evaluator import SearchTask

Moves = Mapping[TensorType, Sequence[tuple[Label, Label]]]
"""Per type of value, the pairs of labels between which something may move."""

ROWS_PER_JOB = 200
"""Pairs that a worker prices at a time: a tenth of a second."""


@dataclass(frozen=True)
class PriceJob:
    """Pairs of labels of one type of value; a worker answers with (seconds, spared seconds) of each."""

    type_: TensorType
    pairs: tuple[tuple[Label, Label], ...]

    def answer(self, task: SearchTask) -> tuple[tuple[float, float], ...]:
        """The prices on the task's mesh."""
        mesh, cost = task.partitioning.mesh, task.options.redistribution_cost
        forms = forms_for(mesh)
        return tuple(_price(self.type_, source, target, mesh, cost, forms) for source, target in self.pairs)


def moved_to(source: Label, target: Label, stands: int) -> Label:
    """The label to which a value is moved for a reader that wants `target`: whole, where it may stand for parts.

    `stands` has the bit of each reduction whose parts a whole value may stand for.
    """
    return tuple(0 if s == 0 and is_pending(t) and stands >> t & 1 else t for s, t in zip(source, target, strict=True))


def _price(
    type_: TensorType, source: Label, target: Label, mesh: Mesh, cost: Any, forms: EmittedCost | None
) -> tuple[float, float]:
    """(seconds, spared) between two labels; infinite where the target awaits what the source does not."""
    if any(is_pending(t) and s != t for s, t in zip(source, target, strict=True)):
        return math.inf, 0.0
    best, links = (math.inf, 0.0), mesh_links(mesh)
    for from_ in distributed_types(type_.shape, source, mesh):
        for to in distributed_types(type_.shape, target, mesh):
            steps = plan(from_, to, element_bytes=type_.element_bytes, cost=cost, forms=forms)
            priced = plan_cost(steps, type_.element_bytes, links)
            spared = priced.latency_s if priced.combinable else 0.0
            best = min(best, (priced.seconds + priced.copy_s, spared), key=lambda p: (p[0] - p[1], p))
    return best


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices of redistributions between labels, by type of value: (seconds, spared seconds)."""

    of: Mapping[TensorType, Mapping[tuple[Label, Label], tuple[float, float]]]
    _known: dict[tuple[TensorType, int, int, int], np.ndarray] = field(default_factory=dict, repr=False)
    _kept: list[Sequence[Label]] = field(default_factory=list, repr=False)

    def seconds(
        self, type_: TensorType, sources: Sequence[Label], targets: Sequence[Label], stands: int = 0
    ) -> np.ndarray:
        """float64[sources, targets]: seconds of each move (`moved_to`), local copies included."""
        return self._table(type_, sources, targets, stands)[:, :, 0]

    def spared(self, type_: TensorType, sources: Sequence[Label], targets: Sequence[Label]) -> np.ndarray:
        """float64[sources, targets]: the seconds of them that a combined collective would not pay."""
        return self._table(type_, sources, targets, 0)[:, :, 1]

    def _table(self, type_: TensorType, sources: Sequence[Label], targets: Sequence[Label], stands: int) -> np.ndarray:
        """By identity: nodes share their tuples of labels, which are kept so that no other takes their place."""
        key = (type_, id(sources), id(targets), stands)
        if key not in self._known:
            known = self.of[type_]
            rows = [[known[s, moved_to(s, t, stands)] for t in targets] for s in sources]
            self._known[key] = np.array(rows, np.float64).reshape(len(sources), len(targets), 2)
            self._kept.extend((sources, targets))
        return self._known[key]


def price_jobs(moves: Moves) -> list[PriceJob]:
    """What workers are asked for: each pair once, in an order that depends on nothing else."""
    jobs: list[PriceJob] = []
    for type_, pairs in moves.items():
        wanted = sorted(set(pairs))
        jobs += [PriceJob(type_, tuple(wanted[i : i + ROWS_PER_JOB])) for i in range(0, len(wanted), ROWS_PER_JOB)]
    return jobs


def prices(jobs: Sequence[PriceJob], answers: Sequence[tuple[tuple[float, float], ...]]) -> Prices:
    """The tables from what workers answered."""
    found: dict[TensorType, dict[tuple[Label, Label], tuple[float, float]]] = {}
    for job, answer in zip(jobs, answers, strict=True):
        found.setdefault(job.type_, {}).update(zip(job.pairs, answer, strict=True))
    return Prices(found)
