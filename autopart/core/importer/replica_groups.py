"""Groups of devices that a collective names by axes of a mesh, as lists.

    sdy.mesh @mesh = <["batch"=4, "model"=2]>

    replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [<name = "model">]>
                     dense<[[0, 1], [2, 3], [4, 5], [6, 7]]>

jax writes the first form from 0.11 on. Listed groups need no symbol of the module, so an op that has them may stand
in another module, and who prices it reads one form.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, cast

import numpy as np

from autopart.core.doors.jax_internals import ir, stablehlo
from autopart.core.importer.module_symbols import axes_of, mesh_of


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
    mesh = mesh_of(op, groups.mesh)
    sizes, place = list[int](), dict[tuple[str, int], int]()
    axis_sizes = dict(axes_of(mesh))
    cuts = {name: {1, size} for name, size in axis_sizes.items()}
    references = [stablehlo.AxisRefAttr(axis) for axis in groups.axes]
    parts = [(axis.name, *_part(axis.sub_axis_info, axis_sizes[axis.name])) for axis in references]
    for name, before, size in parts:
        cuts[name] |= {before, before * size}
    for name in axis_sizes:
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
    numbers = list(mesh.device_ids) or range(math.prod(sizes))
    devices = np.array(numbers, np.int64).reshape(sizes).transpose(*aside, *along)
    return np.ascontiguousarray(devices.reshape(-1, math.prod(sizes[dim] for dim in along)))


def _part(sub_axis: Any, whole: int) -> tuple[int, int]:
    """(what of the axis is outside of the part, the part's size)."""
    if sub_axis is None:
        return 1, whole
    part = stablehlo.SubAxisInfoAttr(sub_axis)
    return part.pre_size, part.size
