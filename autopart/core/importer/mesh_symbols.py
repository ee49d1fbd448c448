"""The meshes that a module defines, and the groups of devices that its collectives name by their axes.

    sdy.mesh @mesh = <["batch"=4, "model"=2]>

    replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [<name = "model">]>
                     dense<[[0, 1], [2, 3], [4, 5], [6, 7]]>

jax writes the first form from 0.11 on. Listed groups need no symbol of the module, so an op that has them may stand
in another module, and who prices it reads one form.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np

from autopart.core.importer.module_symbols import mesh_of
from autopart.core.jax_internals import ir, sdy, stablehlo


class NamedMesh(NamedTuple):
    """Axes with their sizes, outermost first, and the number of the device at each place, in row-major order."""

    axes: tuple[tuple[str, int], ...]
    devices: np.ndarray


def mesh_at(op: ir.Operation, reference: ir.Attribute) -> NamedMesh:
    """The mesh that an attribute of `op` is or names. Raises `ProgramError` where the module does not define it."""
    mesh = mesh_of(op, reference)
    axes = tuple((a.name, a.size) for a in map(sdy.MeshAxisAttr, mesh.axes))
    count = math.prod(size for _, size in axes)
    return NamedMesh(axes, np.array(list(mesh.device_ids) or range(count), np.int64))


def list_groups(op: ir.Operation) -> None:
    """Replaces groups that a collective names by axes of a mesh by the list of their devices."""
    if "replica_groups" not in op.attributes:
        return
    groups = op.attributes["replica_groups"]
    if stablehlo.ReplicaGroupMeshAxesAttr.isinstance(groups):
        listed = _listed(op, cast(Any, stablehlo.ReplicaGroupMeshAxesAttr(groups)))
        with op.context:
            op.attributes["replica_groups"] = ir.DenseElementsAttr.get(cast(Any, listed), shape=listed.shape)


def _listed(op: ir.Operation, groups: Any) -> np.ndarray:
    """int64[groups, size]: devices that differ along the named axes only, the last of these varying fastest."""
    mesh = mesh_at(op, groups.mesh)
    sizes, place = list[int](), dict[tuple[str, int], int]()
    axis_sizes = dict(mesh.axes)
    cuts = {name: {1, size} for name, size in mesh.axes}
    references = [stablehlo.AxisRefAttr(axis) for axis in groups.axes]
    parts = [(axis.name, *_part(axis.sub_axis_info, axis_sizes[axis.name])) for axis in references]
    for name, before, size in parts:
        cuts[name] |= {before, before * size}
    for name, _ in mesh.axes:
        edges = sorted(cuts[name])
        for low, high in pairwise(edges):
            place[name, low] = len(sizes)
            sizes.append(high // low)
    along = [
        place[name, low]
        for name, before, size in parts
        for low in sorted(cuts[name])
        if before <= low < before * size
    ]  # fmt: skip
    aside = [dim for dim in range(len(sizes)) if dim not in along]
    devices = mesh.devices.reshape(sizes).transpose(*aside, *along)
    return np.ascontiguousarray(devices.reshape(-1, math.prod(sizes[dim] for dim in along)))


def _part(sub_axis: Any, whole: int) -> tuple[int, int]:
    """(what of the axis is outside of the part, the part's size)."""
    if sub_axis is None:
        return 1, whole
    part = stablehlo.SubAxisInfoAttr(sub_axis)
    return part.pre_size, part.size
