"""Where propagation stopped, and why: ops that several mappings fit, and ops that have no mapping.

    dot_general of x[tile 0] and x[tile 0]^T: (0, _) -> 0 or (_, 1) -> 1     a conflict: another action decides
    a custom call beside a value tiled along "model": no mapping             unpartitioned: nothing will

A partitioning keeps which ops were once in conflict; which of them still are follows from the table as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autopart.core.op import TileMapping
from autopart.core.table.fitting_mappings import fitting_each, fitting_mappings
from autopart.core.table.loop_nests import slicing, tiling
from autopart.core.table.partitioning import Partitioning


@dataclass(frozen=True)
class Conflict:
    """An op that several mappings would fit; propagation leaves it alone."""

    op: int
    kind: str
    axis: str
    candidates: tuple[TileMapping, ...]
    where: str

    def __str__(self) -> str:
        ways = " or ".join(f"{m.operands} -> {m.results}" for m in self.candidates)
        return f'{self.kind} on "{self.axis}": {ways}' + (f"  at {self.where}" if self.where else "")


class Undecided(NamedTuple):
    """Ops that several mappings fit along one axis.

    op       int32[n]; counts: int32[n], how many mappings fit
    found    int32[n, most]: the numbers of those, as many as `counts` says
    """

    op: np.ndarray
    found: np.ndarray
    counts: np.ndarray

    def candidates(self, partitioning: Partitioning) -> Iterator[tuple[int, tuple[TileMapping, ...]]]:
        """(op, mappings that fit), one op after the other."""
        for op, found, count in zip(self.op.tolist(), self.found, self.counts.tolist(), strict=True):
            of = partitioning.table.of[partitioning.program.op_spec[op]]
            yield op, tuple(of[m] for m in found[:count].tolist())


def conflicts(partitioning: Partitioning) -> list[Conflict]:
    """Ops that were left with several candidates and still have no mapping, by axis and op."""
    program = partitioning.program
    return [
        Conflict(op, program.spec(op).kind, name, mappings, program.where(op))
        for axis, name in enumerate(partitioning.mesh.axis_names)
        for op, mappings in undecided(partitioning, axis).candidates(partitioning)
    ]


def undecided(partitioning: Partitioning, axis: int) -> Undecided:
    """The ops in conflict along an axis, by number; without the words of `conflicts`."""
    open_ops = partitioning.blocked[axis] & (partitioning.state.mapping[:, axis] < 0)
    ops = np.flatnonzero(open_ops).astype(np.int32)
    found, counts = np.empty((len(ops), partitioning.most_found), np.int32), np.empty(len(ops), np.int32)
    if len(ops):
        fitting_each(partitioning.nests, ops, axis, found, counts)
    several = np.flatnonzero(counts > 1)
    return Undecided(ops[several], found[several], counts[several])


def fitting_count(partitioning: Partitioning, op: int, axis: str) -> int:
    """How many mappings of `op` the layouts around it speak for, along `axis`; more than one is a conflict."""
    found = np.empty(partitioning.most_found, np.int32)
    return fitting_mappings(partitioning.nests, op, partitioning.mesh.index(axis), found)


def unpartitioned(partitioning: Partitioning) -> dict[str, list[int]]:
    """Ops that block propagation, by kind: no rule is known, or none can be, while a neighbour is sliced."""
    program, maps, found = partitioning.program, partitioning.table.arrays, {}
    ruleless = np.flatnonzero((maps.first[1:] == maps.first[:-1])[program.op_spec])
    for op in ruleless.tolist():
        spec = program.spec(op)
        if not any(t.shape for t in (*spec.operands, *spec.results)):
            continue
        if any(_sliced_beside(partitioning, op, axis) for axis in range(len(partitioning.mesh.axis_sizes))):
            found.setdefault(spec.kind, []).append(op)
    return found


def _sliced_beside(partitioning: Partitioning, op: int, axis: int) -> bool:
    program, nests = partitioning.program, partitioning.nests
    reads = any(tiling(nests, int(v), axis) >= 0 for v in program.operands_of(op))
    return reads or any(slicing(nests, int(v), axis) for v in program.results_of(op))
