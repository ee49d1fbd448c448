"""Which arguments are data, and which of their dims a program computes on independently.

    probe                    tiles    leaves sums that end    that matmuls wait for    takes weights along
    tile<batch/inputs, 0>    68 %     32 %, the gradients'     0 %                       0 %                  data
    tile<params/*/up, 0>     64 %      0 %                    32 %                     100 %                  features
    tile<token, 0>          100 %      0 %                     0 %                      18 %, the cache       data

A dim of data divides the program's work and leaves the weights whole. So data is found by what a tile does, whatever
arguments are called: images, tokens, edges of a graph, the state of an environment, a token and its cache.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from autopart.core.passes.padding.twins import twins
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.open_tiles import pending_bytes
from autopart.search.space.probe import Probe

ENDED = 0.5
"""A sum that ends divides the work too, and then needs a collective: it counts half of what is tiled."""

WEIGHTS_COST = 0.3
"""What it costs to take all weights along, in shares of the flop: a feature dim does, a batch does not."""

LEAST_SHARE = 0.02
"""Share of the flop that a dim of data divides at least, to be worth a schedule."""

INDEPENDENT = 1.5
"""A second input is data too if it tiles so many times the flop that it leaves in sums for which matmuls wait."""

MOST = 0.75
"""A batch divides that much by this score, and takes no weights along: it is preferred to what divides more and takes
some, as rows of images do with a layer that maps features to pixels. It is the batch by itself, though others might
divide as much together: critics of real and of made images read two batches, of which neither divides half of the
program."""

LIKELY, GRADIENTS = 0.5, 0.05
"""A batch that the program learns from has this score at least, and leaves gradients of this share of the flop."""

CANDIDATES = 4
"""Dims that are tried with the other inputs of that size where none is most of the program."""

TAKES_ALONG = 0.1
"""Share of the weights that another dim of data may take along beyond what the batch does."""


def score(probe: Probe) -> float:
    """How well a tile divides the program's work without touching its weights."""
    return probe.tiled + ENDED * probe.ended - probe.summed - WEIGHTS_COST * probe.weights


def _is_certain(score: float, weights: float) -> bool:
    return score > MOST and weights < TAKES_ALONG


@dataclass(frozen=True)
class Inputs:
    """The data of a program, as one axis sees it.

    batch      decisions that tile every input on the dim that divides most: none if there is no such dim
    dims       the arguments, or their longer twins, that these decisions tile, with the dim
    weights    the share of the weights that they take along
    score      how well they divide the program's work, as `score` says of one
    """

    batch: tuple[Decision, ...]
    dims: Mapping[int, int]
    weights: float
    score: float

    @property
    def arguments(self) -> frozenset[int]:
        """The arguments that are data."""
        return frozenset(self.dims)

    @property
    def preference(self) -> tuple[bool, float]:
        """What is the batch before others: what is certain to be one, then what divides most."""
        return _is_certain(self.score, self.weights), round(self.score, 6)

    @staticmethod
    def of(space: DecisionSpace, axis: str) -> Inputs:
        """Finds them by the probes along `axis`, once per space."""
        known = _KNOWN.setdefault(space, {})
        if axis not in known:
            known[axis] = Inputs._found(space, axis)
        return known[axis]

    @staticmethod
    def _found(space: DecisionSpace, axis: str) -> Inputs:
        return max(
            (Inputs._with_others(space, probe) for probe in _candidates(space, axis)),
            key=lambda found: found.preference,
            default=Inputs((), {}, 0.0, 0.0),
        )

    @staticmethod
    def _with_others(space: DecisionSpace, first: Probe) -> Inputs:
        axis, entrances = first.decision.axis, [*space.program.arguments, *twins(space.program)]
        with scratch(space) as partitioning:
            before = {v: partitioning.tiled_dim(v, axis) for v in entrances}
            space.apply(partitioning, first.decision)
            found = [first, *_others(space, partitioning, first)]
            after = {v: partitioning.tiled_dim(v, axis) for v in entrances}
        dims = {v: d for v, d in after.items() if d >= 0 and before[v] < 0}
        return Inputs(tuple(p.decision for p in found), dims, first.weights, sum(map(score, found)))


_KNOWN: WeakKeyDictionary[DecisionSpace, dict[str, Inputs]] = WeakKeyDictionary()
"""The inputs along each axis that was asked for, as long as somebody has the space."""


def _candidates(space: DecisionSpace, axis: str) -> list[Probe]:
    """The probe that divides most by itself, and where it is not most of the program, those of some other sizes.

    What the program updates element by element is parameters where there is a batch, over which their gradients are
    summed. Where there is none, it may be the data itself, of which each row goes its own way: walkers, lattices,
    populations. Where a dim takes no weights along and ends in gradients there is a batch, however few its rows: then a
    step's work may be most of all the update, which the features of the optimizer's state divide. State that takes
    weights along is theirs, such as moments of Adam: an axis that divides no batch then has none.
    """
    learned, updated = set(space.facts.learned.tolist()), set(space.facts.tied.tolist())

    def rank(probe: Probe) -> tuple[float, bool]:
        return round(score(probe), 6), updated.isdisjoint(space.values(probe.decision).tolist())

    on_axis = (p for p in space.probes if p.decision.axis == axis and p.tiled >= LEAST_SHARE and score(p) > 0)
    data, state = list[Probe](), list[Probe]()
    for probe in on_axis:
        if probe.weights >= TAKES_ALONG and updated.issuperset(space.values(probe.decision).tolist()):
            continue
        (data if learned.isdisjoint(space.values(probe.decision).tolist()) else state).append(probe)
    if not any(score(p) >= LIKELY and p.ended >= GRADIENTS for p in data):
        data += [p for p in state if _is_certain(score(p), p.weights)]
    if any(p.weights < TAKES_ALONG and p.ended >= GRADIENTS for p in data):
        data = [p for p in data if p.weights < TAKES_ALONG]
    ranked = sorted(data, key=rank, reverse=True)
    if not ranked or _is_certain(score(ranked[0]), ranked[0].weights):
        return ranked[:1]
    sizes: dict[tuple[int, int], Probe] = {}
    for probe in sorted(ranked, key=lambda p: p.weights >= TAKES_ALONG):
        dim = probe.decision.dim
        rows = int(space.program.value_shape[space.values(probe.decision)[0], dim])
        sizes.setdefault((dim, rows), probe)
    return list(sizes.values())[:CANDIDATES]


def _others(space: DecisionSpace, partitioning: Partitioning, first: Probe) -> Iterator[Probe]:
    """Inputs that the first one does not reach, on a dim of the same size: the text of a batch of images and text."""
    shapes, axis = space.program.value_shape, first.decision.axis
    rows = shapes[space.values(first.decision)[0], first.decision.dim]
    updated = set(space.facts.tied.tolist())
    for probe in space.probes:
        d, values = probe.decision, space.values(probe.decision)
        if d.axis != axis or d == first.decision or updated.intersection(values.tolist()):
            continue
        same_rows = (shapes[values, d.dim] == rows).all()
        if same_rows and probe.tiled >= INDEPENDENT * probe.summed and space.apply(partitioning, d):
            yield probe


def other_dims(space: DecisionSpace, inputs: Inputs, axis: str) -> list[Probe]:
    """Probes of data on other dims than the batch, those that divide most first."""

    def is_other(p: Probe) -> bool:
        dims = {inputs.dims.get(v, -1) for v in space.values(p.decision).tolist()}
        return -1 not in dims and p.decision.dim not in dims and p.weights <= inputs.weights + TAKES_ALONG

    on_axis = (p for p in space.probes if p.decision.axis == axis and p.tiled >= LEAST_SHARE)
    return sorted(filter(is_other, on_axis), key=lambda p: -score(p))


def other_inputs(space: DecisionSpace, inputs: Inputs, axis: str) -> list[Probe]:
    """Probes of data that the batch does not reach, on their own rows: the nodes beside the edges of a graph."""
    taken = inputs.arguments.union(space.facts.tied.tolist(), weights(space, inputs))

    def is_other(p: Probe) -> bool:
        own = not taken.intersection(space.values(p.decision).tolist())
        return own and p.weights <= TAKES_ALONG and p.tiled >= INDEPENDENT * p.summed

    on_axis = (p for p in space.probes if p.decision.axis == axis and p.tiled >= LEAST_SHARE)
    return sorted(filter(is_other, on_axis), key=lambda p: -score(p))


def weights(space: DecisionSpace, inputs: Inputs) -> frozenset[int]:
    """Arguments besides data that matrix ops read: where the program updates some of those, the updated ones.

    What takes the weights along is no data of its own: features, where no batch divides more.
    """
    read, tied = np.flatnonzero(space.facts.read_by_matrix[space.program.arguments]), set(space.facts.tied.tolist())
    data = inputs.arguments if inputs.weights < TAKES_ALONG else inputs.arguments - tied
    others = {space.program.arguments[i] for i in read.tolist()} - data
    return frozenset(others.intersection(tied) or others)


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
    total, one_group = np.zeros((1, 1)), np.zeros(len(value_bytes), np.int32)
    index = np.array([partitioning.mesh.index(axis)])
    pending_bytes(partitioning.nests, one_group, value_bytes, index, total)
    return float(total[0, 0])
