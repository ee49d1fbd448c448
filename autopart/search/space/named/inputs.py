"""Which arguments are data, and which of their dims a program computes on independently.

    probe                        tiles results   leaves sums   stores in parts
    tile<batch/inputs, 0>        68 % of flop    32 %           0 %              data: the sums are the gradients'
    tile<params/*/up, 0>         64 % of flop    32 %         100 %              weights: their feature dim
    tile<token, 0>              100 % of flop     0 %          18 %              data: the cache goes along

A dim of data divides the program's work and leaves the weights whole. So data is found by what a tile does, whatever
arguments are called: images, tokens, edges of a graph, rows of a replay buffer, a token and its cache.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from autopart.core.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.open_tiles import pending_bytes
from autopart.search.space.probe import Probe

SUM_COSTS = 0.5
"""A sum divides the work too, and then needs a collective: it counts half against what is tiled."""

STORED_COSTS = 0.3
"""Weight of the argument bytes that a tile stores in parts: a feature dim takes all weights along, a batch none."""

LEAST = 0.5
"""Share of the best score of all that data which the program does not update must have; else updated data may win."""

LEAST_SHARE = 0.02
"""Share of the flop that a dim of data divides at least, to be worth a schedule."""

INDEPENDENT = 1.5
"""A second input is data too if its tile leaves so many times less flop in sums than it tiles."""


def score(probe: Probe) -> float:
    """How well a tile divides the program's work without touching its weights."""
    return probe.tiled - SUM_COSTS * probe.summed - STORED_COSTS * probe.stored


@dataclass(frozen=True)
class Inputs:
    """The data of a program, as one axis sees it.

    batch      decisions that tile every input on the dim that divides most: none if there is no such dim
    arguments  the arguments that these decisions tile
    """

    batch: tuple[Decision, ...]
    arguments: frozenset[int]

    @staticmethod
    def of(space: DecisionSpace, axis: str) -> Inputs:
        """Finds them by the probes along `axis`, once per space."""
        known = _KNOWN.setdefault(space, {})
        if axis not in known:
            known[axis] = Inputs._found(space, axis)
        return known[axis]

    @staticmethod
    def _found(space: DecisionSpace, axis: str) -> Inputs:
        best = _best(space, axis)
        if best is None:
            return Inputs((), frozenset())
        with scratch(space) as partitioning:
            space.apply(partitioning, best.decision)
            found = [best.decision, *_others(space, partitioning, best)]
            tiled = {v for v in space.program.arguments if partitioning.tiled_dim(v, axis) >= 0}
        return Inputs(tuple(found), frozenset(v for v in tiled if space.start.tiled_dim(v, axis) < 0))


_KNOWN: WeakKeyDictionary[DecisionSpace, dict[str, Inputs]] = WeakKeyDictionary()
"""The inputs along each axis that was asked for, as long as somebody has the space."""


def _best(space: DecisionSpace, axis: str) -> Probe | None:
    """The probe of an input that divides most; an updated one (the state of an environment) where no other does."""
    updated = set(space.facts.tied.tolist())
    probes = [p for p in space.probes if p.decision.axis == axis and p.tiled >= LEAST_SHARE]
    own = [p for p in probes if not updated.intersection(space.values(p.decision).tolist())]
    best, best_own = max(probes, key=score, default=None), max(own, key=score, default=None)
    if best_own is not None and best is not None and score(best_own) >= LEAST * score(best):
        return best_own
    return best if best is not None and score(best) > 0 else None


def _others(space: DecisionSpace, partitioning: Partitioning, best: Probe) -> Iterator[Decision]:
    """Inputs that the first one does not reach, on a dim of the same size: the text of a batch of images and text."""
    shapes, axis = space.program.value_shape, best.decision.axis
    rows = shapes[space.values(best.decision)[0], best.decision.dim]
    updated = set(space.facts.tied.tolist())
    for probe in space.probes:
        d, values = probe.decision, space.values(probe.decision)
        if d.axis != axis or d == best.decision or updated.intersection(values.tolist()):
            continue
        same_rows = (shapes[values, d.dim] == rows).all()
        if same_rows and probe.tiled >= INDEPENDENT * probe.summed and space.apply(partitioning, d):
            yield d


def other_dims(space: DecisionSpace, inputs: Inputs, axis: str) -> list[Probe]:
    """Probes of data on other dims than the batch, those that divide most first; each effect once."""
    taken = {(d.target, d.dim) for d in inputs.batch}
    found = [
        p
        for p in space.probes
        if p.decision.axis == axis and p.distinct and (p.decision.target, p.decision.dim) not in taken
        and p.tiled >= LEAST_SHARE and inputs.arguments.issuperset(space.values(p.decision).tolist())
    ]  # fmt: skip
    return sorted(found, key=lambda p: -score(p))


def other_inputs(space: DecisionSpace, inputs: Inputs, axis: str) -> list[Probe]:
    """Probes of data that the batch does not reach, on their own rows: the nodes beside the edges of a graph.

    A program that updates nothing may have weights among its inputs: there, what a matmul reads is none of these.
    """
    taken = inputs.arguments.union(space.facts.tied.tolist())
    if not len(space.facts.tied):
        taken = taken.union(np.flatnonzero(space.facts.read_by_matrix).tolist())
    found = [
        p
        for p in space.probes
        if p.decision.axis == axis and p.distinct and p.tiled >= LEAST_SHARE
        and p.tiled >= INDEPENDENT * p.summed
        and not taken.intersection(space.values(p.decision).tolist())
    ]  # fmt: skip
    return sorted(found, key=lambda p: -score(p))


@contextmanager
def scratch(space: DecisionSpace) -> Generator[Partitioning]:
    """The state that the space starts from, to try things on; what was done is undone at the end."""
    mark = space.start.mark()
    try:
        yield space.start
    finally:
        space.start.undo(mark)


def bytes_in_sums(partitioning: Partitioning, value_bytes: np.ndarray, axis: str) -> float:
    """Bytes of values of which each device along `axis` holds a part of a sum that no op takes up in parts."""
    total, one_group = np.zeros(1), np.zeros(len(value_bytes), np.int32)
    index = partitioning.mesh.index(axis)
    pending_bytes(
        partitioning.graph, partitioning.table.arrays, partitioning.state, one_group, value_bytes, index, total
    )
    return float(total[0])
