"""What an op says by a symbol of its module: the mesh of a sharding.

sdy.mesh @mesh = <["batch"=4, "model"=2]>       ... <@mesh, [{"batch"}, {}]>       ->  mesh<["batch"=4, "model"=2]>
"""

from __future__ import annotations

from autopart.base.errors import ProgramError
from autopart.core.doors.jax_internals import ir, sdy
from autopart.core.importer.locations import describe_location
from autopart.core.importer.module_names import quoted_text


def module_of(op: ir.Operation) -> ir.Operation:
    """The module that an op stands in."""
    while op.parent is not None:
        op = op.parent.operation
    return op


def mesh_of(op: ir.Operation, mesh: ir.Attribute) -> sdy.MeshAttr:
    """The mesh of a sharding of `op`, which is written out or named. Raises `ProgramError` for an unknown name."""
    if not str(mesh).startswith("@"):
        return sdy.MeshAttr(mesh)
    name = quoted_text(mesh)
    for block in module_of(op).regions[0].blocks:
        for other in block.operations:
            if other.operation.name == "sdy.mesh" and quoted_text(other.attributes["sym_name"]) == name:
                return sdy.MeshAttr(other.attributes["mesh"])
    raise ProgramError(
        f"{op.name} is over the mesh @{name}, which the module does not define", why=describe_location(op.location)
    )


def axes_of(mesh: sdy.MeshAttr) -> tuple[tuple[str, int], ...]:
    """The axes of a mesh with their sizes, outermost first."""
    return tuple((axis.name, axis.size) for axis in map(sdy.MeshAxisAttr, mesh.axes))
