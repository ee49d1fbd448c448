"""tile_group: tile<v, dim, axis> for every value v of a value group, in turn.

params/blocks/*/up, 1, "model"     probed     an argument or a tag: its prior is what it reached on the start
%683, 1, "model"                   pending    a sum of parts: the tile makes its all_reduce a reduce_scatter, and
                                              what follows works on parts (sequence sharding)
%12, 0, "batch"                    conflict   the result of an op that several mappings fit: once it is tiled,
                                              propagation, which had stopped there, carries on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autopart.core.layout import LAST_TILE
from autopart.core.passes.padding.twins import twins
from autopart.core.table.actions import Action
from autopart.core.table.conflicts import undecided
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.open_tiles import conflicting_bytes, open_tiles, pending_bytes
from autopart.search.space.priors import MIN_SHARE
from autopart.search.space.tile_and_keep import tile_each

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace

KIND = "tile_group"

MAX_PENDING = 6
"""Value groups with pending sums that are offered per axis, those with the most bytes first."""

MAX_CONFLICTING = 12
"""Decisions about the results of ops in conflict that are offered, those with the most bytes first."""

MAX_PRIOR = 0.3
"""The prior of a sum or a conflict at most: what it reaches has not been tried."""


@register_decision_kind(KIND)
@dataclass(frozen=True)
class TileGroup(DecisionKind):
    """See the module. `target` is a value group."""

    goes_by_groups = True

    def values(self, facts: ProgramFacts, decision: Decision) -> np.ndarray:
        """See `DecisionKind.values`."""
        return facts.groups.values(decision.target)

    def exists(self, facts: ProgramFacts, decision: Decision) -> bool:
        """See `DecisionKind.exists`."""
        return 0 <= decision.target < facts.groups.count and facts.has_dim(decision.dim)

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        return tile_each(partitioning, self.values(facts, decision), decision.dim, decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        return f"tile<{facts.named(self.values(facts, decision))}, {decision.dim}, {decision.axis}>"

    def parts(self, facts: ProgramFacts, decision: Decision) -> list[Decision]:
        """Its sizes; where all values are of one size, its values."""
        values = self.values(facts, decision)
        groups = sorted(set(facts.same_shape.of[values].tolist()))
        if len(groups) > 1:
            return [Decision("same_shape", g, decision.dim, decision.axis) for g in groups]
        return value_decisions(values, decision)

    def probed(self, facts: ProgramFacts, axes: Sequence[str]) -> list[Decision]:
        """Every dim of the groups of arguments and tags along every axis, the groups with the most bytes first.

        Of groups with as many bytes, that which the program reads first is tried first (`facts.order`). So is every
        longer twin of an argument that axes do not divide.
        """
        program = facts.program
        first: dict[int, int] = {}
        for value in [*program.arguments, *twins(program), *(v for tagged in program.tags.values() for v in tagged)]:
            first.setdefault(int(facts.groups.of[value]), int(value))
        of_groups = {g: facts.groups.values(g) for g in first}
        largest = sorted(
            first,
            key=lambda g: (-float(facts.value_bytes[of_groups[g]].sum()), facts.order[of_groups[g]].min(), first[g]),
        )
        ranks = program.value_rank
        return [Decision(KIND, g, dim, a) for a in axes for g in largest for dim in range(int(ranks[first[g]]))]

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """What was probed, pending sums and conflicts, of which something is still open."""
        facts = space.facts
        found = space.probed_options(KIND, partitioning, axes)
        found += _pending(facts, partitioning, axes) + _conflicting(facts, partitioning, axes)
        found = list({o.decision: o for o in reversed(found)}.values())[::-1]
        is_open = _open(facts, partitioning, [o.decision for o in found])
        return [o for o, still in zip(found, is_open, strict=True) if still]


def value_decisions(values: np.ndarray, decision: Decision) -> list[Decision]:
    """The decision for each value by itself; none where there is one value only."""
    if len(values) < 2:
        return []
    return [Decision("value", v, decision.dim, decision.axis) for v in values.tolist()]


def _open(facts: ProgramFacts, partitioning: Partitioning, decisions: list[Decision]) -> np.ndarray:
    """bool[decisions]: some value of the group may still be tiled as the decision says."""
    program, out = facts.program, np.empty(len(decisions), np.bool_)
    if not decisions:
        return out
    _, groups, dims, axes = zip(*decisions, strict=True)
    index = {axis: number for number, axis in enumerate(partitioning.mesh.axis_names)}
    open_tiles(
        partitioning.nests, program.value_shape, program.value_rank, facts.groups.pointer, facts.groups.members,
        np.array(groups, np.int32), np.array(dims, np.int32), np.array([index[axis] for axis in axes], np.int32), out,
    )  # fmt: skip
    return out


def _pending(facts: ProgramFacts, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
    """Groups whose values are sums that each device along an axis holds a part of."""
    found, of_axis = [], np.zeros((len(axes), facts.groups.count))
    pending_bytes(
        partitioning.nests, facts.groups.of, facts.value_bytes,
        np.array([partitioning.mesh.index(axis) for axis in axes], np.int64), of_axis,
    )  # fmt: skip
    for axis, in_bytes in zip(axes, of_axis, strict=True):
        total = float(in_bytes.sum())
        large = np.flatnonzero(in_bytes > MIN_SHARE * max(total, 1.0))
        for group in large[np.argsort(-in_bytes[large], kind="stable")[:MAX_PENDING]].tolist():
            rank = int(facts.program.value_rank[facts.groups.members[facts.groups.pointer[group]]])
            prior = MAX_PRIOR * float(in_bytes[group] / total)
            found += [Option(Decision(KIND, group, dim, axis), prior) for dim in range(rank)]
    return found


def _conflicting(facts: ProgramFacts, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
    """The groups of the results of ops in conflict, on the dims that some candidate mapping tiles."""
    total, decided = max(facts.total_bytes, 1.0), dict[Decision, float]()
    for axis in axes:
        index = partitioning.mesh.index(axis)
        open_ops = undecided(partitioning, index)
        if not len(open_ops.op):
            continue
        in_bytes = np.full((facts.groups.count, LAST_TILE), -1.0)
        conflicting_bytes(partitioning.nests, *open_ops, facts.groups.of, facts.value_bytes, in_bytes)
        group, dim = np.nonzero(in_bytes >= 0)
        most = np.lexsort((dim, group, -in_bytes[group, dim]))[:MAX_CONFLICTING]
        for g, d in zip(group[most].tolist(), dim[most].tolist(), strict=True):
            decided[Decision(KIND, g, d, axis)] = float(in_bytes[g, d])
    most = sorted(decided, key=lambda d: (-decided[d], d))[:MAX_CONFLICTING]
    return [Option(d, min(decided[d] / total, MAX_PRIOR)) for d in most]
