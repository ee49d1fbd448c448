"""One op inside its loop nest -> StableHLO on local shapes.

    %y = iota dim 0 : i32[16]              %p = position on "B"
    loop "B" [#tile<0>] of size 4    ->    %i = iota dim 0 : i32[4];  %y = %i + %p * 4

The rule of the op says how (`registry.localize`); this file is what rules emit with. It works at MLIR's current
insertion point and location.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from autopart.core.attributes import encode
from autopart.core.jax_internals import ir, numpy_dtype, stablehlo
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


def mlir_type(type_: TensorType) -> ir.Type:
    """The type in the current context."""
    return ir.RankedTensorType.get(type_.shape, ir.Type.parse(type_.dtype))


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


class MlirLocalOp:
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
        self.spec, self.mappings, self.operands = spec, mappings, operands
        self.operand_types, self.result_types = operand_types, result_types
        self._source, self._nest, self._positions = source, nest, positions
        self.looked_at_operands = False
        self.made: list[ir.Operation] = []

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
        for name, value in attributes.items():
            like = op.attributes[name] if name in op.attributes else _plain(self.spec.attributes[name])
            op.attributes[name] = encode(value, like)
        for name in PLACEMENT_ATTRIBUTES:
            if name in op.attributes:
                del op.attributes[name]
        return list(op.results)

    def splat(self, operand: int) -> np.generic | None:
        """The value of a constant operand all of whose elements are equal."""
        self.looked_at_operands = True
        return splat_of(self.operands[operand])

    def type_of(self, value: ir.Value) -> TensorType:
        """Shape and element type of a value."""
        return tensor_type(value.type)

    def constant(self, value: Any, dtype: str, shape: Sequence[int] = ()) -> ir.Value:
        """A constant: `value` everywhere, or a nested sequence of numbers of shape `shape`."""
        if dtype.startswith("complex"):
            return self._complex_constant(value, dtype, shape)
        type_ = mlir_type(TensorType(tuple(shape), dtype))
        if np.ndim(value) == 0:
            return self._create(
                "constant", [], type_, value=ir.DenseElementsAttr.get_splat(type_, _scalar(value, dtype))
            )
        array = np.ascontiguousarray(np.asarray(value, numpy_dtype(dtype)).reshape(tuple(shape)))
        return self._create("constant", [], type_, value=ir.DenseElementsAttr.get(cast(Any, array), shape=list(shape)))

    def _complex_constant(self, value: Any, dtype: str, shape: Sequence[int]) -> ir.Value:
        part = dtype.removeprefix("complex<").removesuffix(">")
        parts = [self.constant(np.real(value), part, shape), self.constant(np.imag(value), part, shape)]
        return self._create("complex", parts, mlir_type(TensorType(tuple(shape), dtype)))

    def iota(self, type_: TensorType, dim: int) -> ir.Value:
        """0, 1, 2, ... along `dim`."""
        return self._create("iota", [], mlir_type(type_), iota_dimension=_i64(dim))

    def unary(self, kind: str, a: ir.Value) -> ir.Value:
        """An elementwise op of one operand."""
        return self._create(kind, [a], a.type)

    def binary(self, kind: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """An elementwise op of two operands of equal type."""
        return self._create(kind, [a, b], a.type)

    def compare(self, a: ir.Value, b: ir.Value, direction: str) -> ir.Value:
        """i1 values: `a` against `b`."""
        type_ = TensorType(tensor_type(a.type).shape, "i1")
        return self._create("compare", [a, b], mlir_type(type_), comparison_direction=_direction(direction))

    def select(self, predicate: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a` where the predicate holds, else `b`."""
        return self._create("select", [predicate, a, b], a.type)

    def convert(self, a: ir.Value, dtype: str) -> ir.Value:
        """`a` with another element type; `a` itself if it has it."""
        type_ = tensor_type(a.type)
        return a if type_.dtype == dtype else self._create("convert", [a], mlir_type(TensorType(type_.shape, dtype)))

    def broadcast(self, a: ir.Value, shape: Sequence[int], dims: Sequence[int] = ()) -> ir.Value:
        """`a` broadcast to `shape`; dim i of `a` becomes dim `dims[i]`."""
        type_ = mlir_type(TensorType(tuple(shape), tensor_type(a.type).dtype))
        return self._create("broadcast_in_dim", [a], type_, broadcast_dimensions=_i64s(dims))

    def reshape(self, a: ir.Value, shape: Sequence[int]) -> ir.Value:
        """`a` with another shape of as many elements; `a` itself if it has it."""
        type_ = tensor_type(a.type)
        return (
            a
            if type_.shape == tuple(shape)
            else self._create("reshape", [a], mlir_type(TensorType(tuple(shape), type_.dtype)))
        )

    def slice(self, a: ir.Value, starts: Sequence[int], limits: Sequence[int]) -> ir.Value:
        """`a[starts:limits]`, static bounds per dim."""
        shape = tuple(limit - start for start, limit in zip(starts, limits, strict=True))
        return self._create(
            "slice",
            [a],
            mlir_type(TensorType(shape, tensor_type(a.type).dtype)),
            start_indices=_i64s(starts),
            limit_indices=_i64s(limits),
            strides=_i64s([1] * len(shape)),
        )

    def pad(self, a: ir.Value, value: ir.Value, low: Sequence[int], high: Sequence[int]) -> ir.Value:
        """`a` with `value` before and after each dim."""
        type_ = tensor_type(a.type)
        shape = tuple(n + lo + hi for n, lo, hi in zip(type_.shape, low, high, strict=True))
        return self._create(
            "pad",
            [a, value],
            mlir_type(TensorType(shape, type_.dtype)),
            edge_padding_low=_i64s(low),
            edge_padding_high=_i64s(high),
            interior_padding=_i64s([0] * len(shape)),
        )

    def concatenate(self, parts: Sequence[ir.Value], dim: int) -> ir.Value:
        """The parts one after the other along `dim`."""
        types = [tensor_type(p.type) for p in parts]
        shape = list(types[0].shape)
        shape[dim] = sum(t.shape[dim] for t in types)
        type_ = mlir_type(TensorType(tuple(shape), types[0].dtype))
        return self._create("concatenate", parts, type_, dimension=_i64(dim))

    def dynamic_slice(self, a: ir.Value, starts: Sequence[ir.Value], sizes: Sequence[int]) -> ir.Value:
        """A window of `a`; `starts` are scalars, clamped to where the window fits."""
        type_ = mlir_type(TensorType(tuple(sizes), tensor_type(a.type).dtype))
        return self._create("dynamic_slice", [a, *starts], type_, slice_sizes=_i64s(sizes))

    def dynamic_update_slice(self, a: ir.Value, update: ir.Value, starts: Sequence[ir.Value]) -> ir.Value:
        """`a` with a window replaced; `starts` are scalars, clamped to where the window fits."""
        return self._create("dynamic_update_slice", [a, update, *starts], a.type)

    def _create(self, kind: str, operands: Sequence[ir.Value], result: ir.Type, **attributes: ir.Attribute) -> ir.Value:
        op = ir.Operation.create(f"stablehlo.{kind}", [result], list(operands), attributes)
        self.made.append(op)
        return op.results[0]


def _plain(value: bool | int) -> ir.Attribute:
    """The attribute of a default, which the op itself does not have."""
    return ir.BoolAttr.get(value) if isinstance(value, bool) else _i64(value)


def _i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _i64s(values: Sequence[int]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get(list(values))


def _direction(name: str) -> ir.Attribute:
    return stablehlo.ComparisonDirectionAttr.get(name)


def _scalar(value: Any, dtype: str) -> ir.Attribute:
    element = ir.Type.parse(dtype)
    if dtype == "i1":
        return ir.BoolAttr.get(bool(value))
    if dtype.startswith(("i", "ui")):
        return ir.IntegerAttr.get(element, int(value))
    return ir.FloatAttr.get(element, float(value))
