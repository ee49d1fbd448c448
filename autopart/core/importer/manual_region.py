"""A `jax.shard_map` in a module, read: which axes it partitions by hand, and how its arrays are cut along them.

    sdy.manual_computation(%x) in_shardings=[<@mesh, [{?}, {"model", ?}]>] out_shardings=[<@mesh, [{}, {}]>]
        manual_axes={"model"} (%h: tensor<8x4xf32>) { ... }

    ManualRegion(axes ("model",), mesh (("batch", 4), ("model", 2)), operands (((), ("model",)),), results (((), ()),))

Axes of size one cut nothing and are left out; a region over such axes alone is no region.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autopart.base.errors import ProgramError
from autopart.core.doors.jax_internals import ir, sdy
from autopart.core.importer.locations import describe_location
from autopart.core.importer.module_symbols import axes_of, mesh_of

Cuts = tuple[tuple[str, ...], ...]
"""For each dim the axes of the region that cut it, outermost first."""


@dataclass(frozen=True)
class ManualRegion:
    """What a region says of its mesh, its operands and its results."""

    axes: tuple[str, ...]
    mesh: tuple[tuple[str, int], ...]
    operands: tuple[Cuts, ...]
    results: tuple[Cuts, ...]

    def attributes(self, cuts: Cuts = ()) -> dict[str, Any]:
        """Those of an op at its edge."""
        return {"axes": self.axes, "dims": cuts, "mesh": self.mesh}


def manual_region(op: ir.Operation) -> ManualRegion:
    """Reads a `sdy.manual_computation`. Raises `ProgramError` where it names a part of an axis, or no mesh."""
    shardings = [_shardings(op, name) for name in ("in_shardings", "out_shardings")]
    meshes = [axes_of(mesh_of(op, s.mesh_or_ref)) for group in shardings for s in group]
    mesh = next((mesh for mesh in meshes if mesh), ())
    sizes = dict(mesh)
    named = sdy.ManualAxesAttr(op.attributes["manual_axes"])
    manual = {named[i] for i in range(len(named))}
    axes = tuple(name for name in sizes if name in manual and sizes[name] > 1)
    operands, results = (tuple(_cuts(op, s, axes) for s in group) for group in shardings)
    return ManualRegion(axes, mesh, operands, results)


def without_empty_constraints(region: ir.Region) -> None:
    """Takes out constraints that leave every dim open, which jax writes behind each op of a region, reducers too."""
    for op in list(_constraints(region)):
        sharding = sdy.TensorShardingAttr(op.attributes["sharding"])
        dims = [sdy.DimensionShardingAttr(d) for d in sharding.dimension_shardings]
        if all(not d.is_closed and not list(d.axes) for d in dims):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def _constraints(region: ir.Region) -> Iterator[ir.Operation]:
    for block in region.blocks:
        for op in block.operations:
            if op.operation.name == "sdy.sharding_constraint":
                yield op.operation
            for inner in op.operation.regions:
                yield from _constraints(inner)


def _shardings(op: ir.Operation, name: str) -> list[Any]:
    return [sdy.TensorShardingAttr(s) for s in sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings]


def _cuts(op: ir.Operation, sharding: Any, axes: tuple[str, ...]) -> Cuts:
    found: list[tuple[str, ...]] = []
    for dim in sharding.dimension_shardings:
        refs = [sdy.AxisRefAttr(a) for a in sdy.DimensionShardingAttr(dim).axes]
        if any(r.sub_axis_info is not None and r.name in axes for r in refs):
            raise ProgramError("a shard_map region cuts by a part of an axis", why=describe_location(op.location))
        found.append(tuple(r.name for r in refs if r.name in axes))
    return tuple(found)
