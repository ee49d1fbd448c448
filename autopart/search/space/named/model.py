"""Schedules that divide weights: each device holds its share of heads, hidden dims and vocabulary (Megatron).

    probe                          reaches        divides
    tile<params/*/up, 1>           6 of 10 ops    the MLP: `down` is inferred, behind it one sum
    tile<params/*/qkv, 2>          3 of 10 ops    heads: `out` is inferred, behind it one sum
    tile<params/*/up, 0>           all ops        no schedule: the features of every activation

A weight is divided on the dim that stays narrow: propagation carries it through a block to the matmul that sums over
it, and no further. So query, key and value may be one weight or three, a gate may stand beside `up`, and keys may be
shared by heads: what belongs together is inferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autopart.core.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named.inputs import Inputs, scratch
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule
from autopart.search.space.probe import Probe

NARROW = 0.75
"""A share of what the furthest probe on an axis reaches: beyond it, a decision spreads over the whole program."""

MOST_SUMS = 6
"""Groups of sums that sequence parallelism tiles, those with the most bytes first."""


@register_named_schedule("Megatron")
@dataclass(frozen=True)
class Megatron(NamedSchedule):
    """Each device holds its share of heads and hidden dims."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield Named(f"Megatron({axis})", matrices(space, axis, tables=False), (axis,))


@register_named_schedule("MegatronVocab")
@dataclass(frozen=True)
class MegatronVocabulary(NamedSchedule):
    """Megatron, and each device holds its share of the vocabulary."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield Named(f"MegatronVocab({axis})", matrices(space, axis, tables=True), (axis,))


@register_named_schedule("MegatronSP")
@dataclass(frozen=True)
class MegatronSequence(NamedSchedule):
    """Megatron with sequence parallelism: between blocks each device holds its share of the sequence."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            found = matrices(space, axis, tables=True)
            sums = _sums(space, found, axis) if found else ()
            if sums:
                yield Named(f"MegatronSP({axis})", (*found, *sums), (axis,))


def matrices(space: DecisionSpace, axis: str, *, tables: bool) -> Decisions:
    """Narrow decisions about weights, one per value group, those that divide most first; `tables`: look-ups too."""
    data = Inputs.of(space, axis).arguments
    on_axis = [p for p in space.probes if p.decision.axis == axis and p.distinct]
    most = max((p.reached for p in on_axis), default=0.0)
    found: list[Decision] = []
    with scratch(space) as partitioning:
        for probe in sorted(on_axis, key=lambda p: -(p.tiled + p.summed)):
            values = space.values(probe.decision)
            is_weight = space.facts.read_by_matrix[values[0]] and not data.intersection(values.tolist())
            is_narrow = probe.reached <= NARROW * most
            if (
                is_weight
                and is_narrow
                and (tables or not _is_table(space, probe))
                and space.apply(partitioning, probe.decision)
            ):
                found.append(probe.decision)
    return tuple(found)


def _is_table(space: DecisionSpace, probe: Probe) -> bool:
    return bool(space.facts.looked_up[space.values(probe.decision)[0]])


def _sums(space: DecisionSpace, matrices: Decisions, axis: str) -> Decisions:
    """Tiles of the sums that the matrices leave, on the sequence: the dim behind the batch, or the only one there is.

    The last dim has the features, over which norms would have to be summed.
    """
    found: list[Decision] = []
    with scratch(space) as partitioning:
        for decision in matrices:
            space.apply(partitioning, decision)
        for _ in range(MOST_SUMS):
            decision = _largest_sum(space, partitioning, axis, {d.target for d in found})
            if decision is None:
                break
            space.apply(partitioning, decision)
            found.append(decision)
    return tuple(found)


def _largest_sum(space: DecisionSpace, partitioning: Partitioning, axis: str, done: set[int]) -> Decision | None:
    ranks, groups = space.program.value_rank, space.facts.groups
    for target in _pending_groups(space, partitioning, axis):
        values = groups.values(target)
        dims = [1, 0] if ranks[values[0]] >= 3 else [0]
        legal = [d for d in dims if not partitioning.why_not_tile(int(values[0]), d, axis)]
        if target not in done and ranks[values[0]] >= 2 and legal:
            return Decision("tile_group", target, legal[0], axis)
    return None


def _pending_groups(space: DecisionSpace, partitioning: Partitioning, axis: str) -> list[int]:
    """Groups of activations of which each device holds a part of a sum, those with the most bytes first."""
    pending = [o.decision for o in space.options(partitioning) if o.decision.axis == axis and o.decision.dim == 0]
    found = {d.target for d in pending if partitioning.pending(int(space.values(d)[0]), axis)}
    in_bytes = {g: float(space.facts.value_bytes[space.facts.groups.values(g)].sum()) for g in found}
    weights = {int(np.prod(space.program.value_shape[v])) for v in space.facts.tied}
    same = [g for g in found if int(np.prod(space.program.value_shape[space.facts.groups.values(g)[0]])) in weights]
    return sorted(found.difference(same), key=lambda g: (-in_bytes[g], g))
