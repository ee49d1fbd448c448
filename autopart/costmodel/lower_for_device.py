"""Lowering for the device that a mesh names: each collective in the form that is cheapest there.

    Mesh({"batch": 4, "model": 2}, device="tpu_v5e")     a gather of two dims: one collective and copies, or two without
    Mesh({"batch": 4, "model": 2})                       one collective: nobody knows what a copy costs

Whoever lowers a program that is to be priced, searched or run lowers it here, so that what is priced is what runs.
"""

from __future__ import annotations

from autopart.base.errors import MeshError
from autopart.core.mesh import Mesh
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.links.redistribution_seconds import RedistributionSeconds
from autopart.costmodel.hardware.links import mesh_links
from autopart.spmd.device_local import DeviceLocal, LoweringContext, LoweringOptions, lower


def lower_for_device(
    partitioning: Partitioning, options: LoweringOptions = LoweringOptions(), statics: LoweringContext | None = None
) -> DeviceLocal:
    """The device-local program of a partitioning, its collectives in the forms that cost least on the mesh's device."""
    return lower(partitioning, options, statics, forms_for(partitioning.mesh))


def forms_for(mesh: Mesh) -> RedistributionSeconds | None:
    """By what forms are chosen on a mesh; None where it names no device, or not all of its axes have a link."""
    if mesh.device is None:
        return None
    try:
        mesh_links(mesh)
    except MeshError:
        return None
    return RedistributionSeconds(mesh)
