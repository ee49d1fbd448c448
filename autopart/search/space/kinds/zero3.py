"""zero3: each large array that the program updates, on its first dim that the axis divides (ZeRO-3, FSDP).

Of stacked layers the dim that a scan walks along is left whole (`tile_and_keep.store_each`).

Parameters and optimizer state are then stored in parts; a parameter is gathered where an op reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autopart.core.table.actions import Action
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decisions import Decision, DecisionKind, Option, register_decision_kind
from autopart.search.space.facts import ProgramFacts
from autopart.search.space.open_tiles import undecided_values
from autopart.search.space.tile_and_keep import store_each

if TYPE_CHECKING:
    from autopart.search.space.decision_space import DecisionSpace


@register_decision_kind("zero3")
@dataclass(frozen=True)
class Zero3(DecisionKind):
    """See the module. `target` is how many elements an array has at least; `dim` says nothing."""

    goes_by_groups = True

    def apply(self, facts: ProgramFacts, partitioning: Partitioning, decision: Decision) -> list[Action]:
        """See `DecisionKind.apply`."""
        shapes = [facts.program.type_of(v).shape for v in facts.updated.tolist()]
        is_large = np.array([math.prod(shape) >= decision.target for shape in shapes], np.bool_)
        return store_each(facts, partitioning, facts.updated[is_large], decision.axis)

    def describe(self, facts: ProgramFacts, decision: Decision) -> str:
        """See `DecisionKind.describe`."""
        size = f" of {decision.target:,} elements or more" if decision.target else ""
        return f"tile<every updated array{size}, first divisible dim, {decision.axis}>"

    def options(self, space: DecisionSpace, partitioning: Partitioning, axes: Sequence[str]) -> list[Option]:
        """One per axis along which some updated array is undecided."""
        saved = bytes_saved(space.facts, partitioning, axes)
        return [Option(Decision("zero3", 0, -1, axis), share) for axis, share in saved.items() if share > 0]

    def refinements(self, facts: ProgramFacts, decision: Decision) -> list[tuple[Decision, ...]]:
        """All updated arrays but those of one group."""
        return all_but_one_group(facts, decision)


def bytes_saved(facts: ProgramFacts, partitioning: Partitioning, axes: Sequence[str]) -> dict[str, float]:
    """By axis: the share of the updated arrays' bytes that tiling undecided ones along it would take from a device."""
    indices = [partitioning.mesh.index(axis) for axis in axes]
    free, in_bytes = np.empty((len(axes), len(facts.updated)), np.bool_), facts.updated_bytes
    undecided_values(
        partitioning.nests, facts.updated,
        np.array(indices, np.int64), free,
    )  # fmt: skip
    total = max(in_bytes.sum(), 1.0)
    return {
        axis: float(in_bytes[some].sum() / total) * (1 - 1 / float(partitioning.mesh.axis_sizes[index]))
        for axis, index, some in zip(axes, indices, free, strict=True)
    }


def all_but_one_group(facts: ProgramFacts, decision: Decision) -> list[tuple[Decision, ...]]:
    """The decision after keeping the arrays of one value group whole, for each group of updated arrays."""
    groups = dict.fromkeys(facts.groups.of[facts.updated].tolist())
    return [(Decision("keep", group, -1, decision.axis), decision) for group in groups]
