"""Seconds of the collectives that a program itself has, in the regions that its author partitioned by hand.

    all_reduce %y {replica_groups [[0,1],[2,3]]}     on {batch:2, model:2}: over "model", of what a device holds of %y

What the partitioner inserts is priced as redistributions; these are ops, of one kind each, whose groups say which axes
they are over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autopart.core.mesh import Mesh
from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Collective
from autopart.core.program import Program
from autopart.costmodel.compiled.arrays import LocalArrays
from autopart.costmodel.compiled.links.collective_seconds import collective_seconds
from autopart.costmodel.hardware.links import Links


@dataclass(frozen=True, eq=False)
class OwnCollectives:
    """The collectives of a program on a mesh: op numbers, and per op the kind and axes by which it is priced."""

    ops: np.ndarray
    kinds: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(program: Program, mesh: Mesh) -> OwnCollectives:
        """Those of a program; few programs have any."""
        priced = {i: (kind, axes_of(s, mesh)) for i, s in enumerate(program.specs) if (kind := _priced_as(s))}
        ops = np.flatnonzero(np.isin(program.op_spec, list(priced)))
        found = [priced[int(program.op_spec[op])] for op in ops]
        return OwnCollectives(ops, tuple(kind for kind, _ in found), tuple(axes for _, axes in found))

    def seconds(self, program: Program, held: LocalArrays, links: Links) -> np.ndarray:
        """float64[len(ops)]: seconds of each on the links, once."""
        took = np.zeros(len(self.ops))
        for i, (op, kind, axes) in enumerate(zip(self.ops.tolist(), self.kinds, self.axes, strict=True)):
            uses = np.arange(int(program.operand_ptr[op]), int(program.operand_ptr[op + 1]))
            in_bytes = held.uses["use_elements"][uses] * program.element_bytes[program.operands[uses]]
            took[i] = collective_seconds(links, kind, float(in_bytes.sum()), axes) if axes else 0.0
        return took


def axes_of(spec: OpSpec, mesh: Mesh) -> tuple[str, ...]:
    """The mesh axes along which devices of one group differ; all of them where the groups cannot be told."""
    groups = spec.attributes.get("replica_groups", spec.attributes.get("source_target_pairs"))
    if not isinstance(groups, tuple):
        return mesh.axis_names
    places = np.array([np.unravel_index(group, mesh.axis_sizes) for group in groups])
    differ = (places != places[:, :, :1]).any(axis=(0, 2))
    return tuple(name for name, differs in zip(mesh.axis_names, differ.tolist(), strict=True) if differs)


def _priced_as(spec: OpSpec) -> str:
    """The kind of collective that an op is; empty for ops that are none."""
    traits = traits_of(spec)
    return traits.priced_as if isinstance(traits, Collective) and traits.communicates(spec) else ""
