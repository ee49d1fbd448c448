"""StableHLO of one redistribution step, and where a device stands in the mesh."""

from __future__ import annotations

import math

import numpy as np

from autopart.core.jax_internals import ir, stablehlo
from autopart.core.mesh import Mesh
from autopart.core.op import REDUCTION_NAMES
from autopart.spmd.redistribution import Step

_REDUCERS = {"sum": "add", "max": "maximum", "min": "minimum", "mul": "multiply", "and": "and", "or": "or"}


class Emitter:
    """Emits collectives for a mesh; `begin` comes first, in the entry block."""

    def __init__(self, mesh: Mesh):
        self._mesh = mesh
        self._position: list[ir.Value] = []

    def begin(self) -> None:
        """Works out this device's coordinate on each axis."""
        scalar = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        device = stablehlo.convert(scalar, stablehlo.partition_id())
        sizes = self._mesh.axis_sizes
        for index, size in enumerate(sizes):
            place = stablehlo.divide(device, self._constant(math.prod(sizes[index + 1 :])))
            self._position.append(stablehlo.remainder(place, self._constant(size)))

    def enter(self) -> None:
        """A region begins."""

    def leave(self) -> None:
        """A region ends."""

    def axis_size(self, axis: int) -> int:
        """Number of devices along an axis."""
        return self._mesh.axis_sizes[axis]

    def axis_position(self, axis: int) -> ir.Value:
        """i32 scalar: this device's coordinate on an axis."""
        return self._position[axis]

    def emit(self, step: Step, value: ir.Value) -> ir.Value:
        """The step on a local value."""
        element = ir.RankedTensorType(value.type).element_type
        result = ir.RankedTensorType.get(step.target.local_shape, element)
        axis = self._mesh.index(step.mesh_axes[0])
        size = self._mesh.axis_sizes[axis]
        i64 = ir.IntegerType.get_signless(64)
        if step.kind == "all_slice":
            width = self._constant(step.target.local_shape[step.dim])
            start = stablehlo.multiply(self._position[axis], width)
            starts = [start if d == step.dim else self._constant(0) for d in range(len(step.source.shape))]
            return stablehlo.dynamic_slice(value, starts, ir.DenseI64ArrayAttr.get(list(step.target.local_shape)))
        attributes = {
            "replica_groups": self._groups(axis),
            "channel_handle": stablehlo.ChannelHandle.get(1, 1),
        }
        if step.kind == "all_to_all":
            attributes |= {
                "split_dimension": ir.IntegerAttr.get(i64, step.other),
                "concat_dimension": ir.IntegerAttr.get(i64, step.dim),
                "split_count": ir.IntegerAttr.get(i64, size),
            }
            return ir.Operation.create("stablehlo.all_to_all", [result], [value], attributes).results[0]
        attributes["use_global_device_ids"] = ir.UnitAttr.get()
        if step.kind == "all_gather":
            attributes["all_gather_dim"] = ir.IntegerAttr.get(i64, step.dim)
            return ir.Operation.create("stablehlo.all_gather", [result], [value], attributes).results[0]
        if step.kind == "reduce_scatter":
            attributes["scatter_dimension"] = ir.IntegerAttr.get(i64, step.dim)
        op = ir.Operation.create(f"stablehlo.{step.kind}", [result], [value], attributes, regions=1)
        scalar = ir.RankedTensorType.get([], element)
        block = op.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            kind = _REDUCERS[REDUCTION_NAMES[step.code]]
            stablehlo.return_([ir.Operation.create(f"stablehlo.{kind}", [scalar], list(block.arguments)).results[0]])
        return op.results[0]

    def _constant(self, number: int) -> ir.Value:
        i32 = ir.IntegerType.get_signless(32)
        kind = ir.RankedTensorType.get([], i32)
        return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(i32, number)))

    def _groups(self, axis: int) -> ir.Attribute:
        ids = np.arange(self._mesh.size).reshape(self._mesh.axis_sizes)
        groups = np.ascontiguousarray(np.moveaxis(ids, axis, -1).reshape(-1, self._mesh.axis_sizes[axis]), np.int64)
        return ir.DenseElementsAttr.get(groups, shape=groups.shape)
