"""One op inside its loop nest -> StableHLO on local shapes.

    %y = iota dim 0 : i32[16]              %p = position on "B"
    loop "B" [#tile<0>] of size 4    ->    %i = iota dim 0 : i32[4];  %y = %i + %p * 4

The rule of the op says how (`registry.localize`); this file and `mlir_values.py` are what rules emit with.
It works at MLIR's current insertion point and location.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from autopart.core.attributes import encode
from autopart.core.doors.jax_internals import ir, stablehlo
from autopart.core.mlir_values import MlirValues, mlir_type
from autopart.core.op import OpSpec, TensorType, TileMapping
from autopart.core.op_spec_import import PLACEMENT_ATTRIBUTES, spec_of, tensor_type


class AxisPositions(Protocol):
    """Where a device stands in the mesh."""

    def axis_size(self, axis: int) -> int:
        """Number of devices along the axis."""
        ...

    def axis_position(self, axis: int) -> ir.Value:
        """i32 scalar: this device's coordinate on the axis."""
        ...


def reusable(local: MlirLocalOp, results: Sequence[ir.Value]) -> ir.Operation | None:
    """The one op that `local` became, if it can be cloned for the next op of equal spec, loops and layouts.

    None where the rule emitted more than one op, or looked at what an operand holds.
    """
    if local.looked_at_operands or not results or isinstance(results[0].owner, ir.Block):
        return None
    owner = results[0].owner.operation
    alone = list(owner.results) == list(results) and list(owner.operands) == list(local.operands)
    return owner if alone else None


def splat_of(value: ir.Value) -> np.generic | None:
    """The value of a constant all of whose elements are equal, seen through broadcasts; None if not known."""
    while not isinstance(value.owner, ir.Block):
        owner = value.owner.operation
        if owner.name == "stablehlo.broadcast_in_dim":
            value = owner.operands[0]
            continue
        if owner.name != "stablehlo.constant":
            return None
        found = spec_of(owner).attributes["value"]
        return found if isinstance(found, np.generic) else None
    return None


class MlirLocalOp(MlirValues):
    """`LocalOp` over MLIR values: what a rule's `localize` is given.

    `nest` lists (axis, mapping number) of its loops, outermost first; `source` is an op with this spec, of the same
    MLIR context, or None for kinds that are not in the module (arguments, carries, tags). `made` has what was emitted.
    """

    def __init__(
        self,
        spec: OpSpec,
        source: ir.Operation | None,
        mappings: Sequence[TileMapping],
        nest: Sequence[tuple[int, int]],
        operands: Sequence[ir.Value],
        operand_types: Sequence[TensorType],
        result_types: Sequence[TensorType],
        positions: AxisPositions,
    ):
        super().__init__()
        self.spec, self.mappings, self.operands = spec, mappings, operands
        self.operand_types, self.result_types = operand_types, result_types
        self._source, self._nest, self._positions = source, nest, positions
        self.looked_at_operands = False

    def ways(self, mapping: int) -> int:
        """Into how many slices the loops that take the mapping cut."""
        return math.prod(self._positions.axis_size(axis) for axis, m in self._nest if m == mapping)

    def position(self, mapping: int) -> ir.Value:
        """i32 scalar: which slice of the mapping this device holds; outer loops are major."""
        index = None
        for axis in (axis for axis, m in self._nest if m == mapping):
            coordinate = self._positions.axis_position(axis)
            if index is None:
                index = coordinate
            else:
                size = self.constant(self._positions.axis_size(axis), "i32")
                index = self.binary("add", self.binary("multiply", index, size), coordinate)
        return self.constant(0, "i32") if index is None else index

    def clone(
        self,
        operands: Sequence[ir.Value] | None = None,
        result_types: Sequence[TensorType] | None = None,
        **attributes: Any,
    ) -> list[ir.Value]:
        """The op itself on local operands, with some attributes replaced."""
        if self._source is None:
            raise ValueError(f"{self.spec.kind} stands for no op of the module; its rule must say what it leaves")
        operands = self.operands if operands is None else operands
        types = [mlir_type(t) for t in (self.result_types if result_types is None else result_types)]
        op = self._source.clone()
        self.made.append(op.operation)
        for position, value in enumerate(operands):
            op.operands[position] = value
        for result, type_ in zip(op.results, types, strict=True):
            result.set_type(type_)
        types = zip(self.spec.operands, self.operand_types, strict=True)
        shapes = {whole.shape: local.shape for whole, local in types if whole.shape}
        for region in op.regions:
            _computes_on(region, shapes)
        for name, value in attributes.items():
            like = op.attributes[name] if name in op.attributes else _plain(self.spec.attributes.get(name, value))
            op.attributes[name] = encode(value, like)
        for name in PLACEMENT_ATTRIBUTES:
            if name in op.attributes:
                del op.attributes[name]
        return list(op.results)

    def replaced_windows(self, a: ir.Value, updates: ir.Value, starts: ir.Value) -> ir.Value:
        """See `LocalOp.replaced_windows`."""
        rest = list(range(1, len(self.type_of(a).shape)))
        one = ir.RankedTensorType.get([], ir.RankedTensorType(a.type).element_type)
        op = ir.Operation.create(
            "stablehlo.scatter",
            [a.type],
            [a, starts, updates],
            {
                "scatter_dimension_numbers": stablehlo.ScatterDimensionNumbers.get(rest, [], [0], [0], rest, 1),
                "unique_indices": ir.BoolAttr.get(True),
            },
            regions=1,
        )
        block = op.regions[0].blocks.append(one, one)
        with ir.InsertionPoint(block):
            stablehlo.return_([block.arguments[1]])
        self.made.append(op)
        return op.results[0]

    def splat(self, operand: int) -> np.generic | None:
        """The value of a constant operand all of whose elements are equal."""
        self.looked_at_operands = True
        return splat_of(self.operands[operand])


def _computes_on(region: ir.Region, shapes: Mapping[tuple[int, ...], tuple[int, ...]]) -> None:
    """Gives arrays in a region that have the shape of an operand its local shape: the body of a scan has some."""
    for block in region.blocks:
        for value in (*block.arguments, *(result for op in block.operations for result in op.operation.results)):
            type_ = tensor_type(value.type)
            if shapes.get(type_.shape, type_.shape) != type_.shape:
                value.set_type(mlir_type(TensorType(shapes[type_.shape], type_.dtype)))


def _plain(value: bool | int | Sequence[Sequence[int]]) -> ir.Attribute:
    """The attribute of a default, which the op itself does not have."""
    if isinstance(value, Sequence):
        return ir.DenseIntElementsAttr(ir.DenseElementsAttr.get(cast(Any, np.array(value, np.int64))))
    return (
        ir.BoolAttr.get(value)
        if isinstance(value, bool)
        else ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    )
