"""StableHLO of the few ops from which rules and redistributions build what a slice needs.

    values = MlirValues()
    values.concatenate([values.slice(a, [0], [2]), values.constant(0, "f32", [2])], 0)

It works at MLIR's current insertion point and location; `made` has what was emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autopart.core.jax_internals import ir, numpy_dtype, stablehlo
from autopart.core.op import TensorType
from autopart.core.op_spec_import import tensor_type


def mlir_type(type_: TensorType) -> ir.Type:
    """The type in the current context."""
    return ir.RankedTensorType.get(type_.shape, ir.Type.parse(type_.dtype))


class MlirValues:
    """The vocabulary of `LocalOp` over MLIR values, as far as it does not depend on the op."""

    def __init__(self) -> None:
        self.made: list[ir.Operation] = []

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
        return self._create("iota", [], mlir_type(type_), iota_dimension=i64(dim))

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

    def bitcast(self, a: ir.Value, dtype: str) -> ir.Value:
        """The bits of `a` as another element type of the same length."""
        return self._create("bitcast_convert", [a], mlir_type(TensorType(tensor_type(a.type).shape, dtype)))

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

    def transpose(self, a: ir.Value, permutation: Sequence[int]) -> ir.Value:
        """`a` with its dims in another order."""
        type_ = tensor_type(a.type)
        made = mlir_type(TensorType(tuple(type_.shape[d] for d in permutation), type_.dtype))
        return self._create("transpose", [a], made, permutation=_i64s(permutation))

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
        return self._create("concatenate", parts, type_, dimension=i64(dim))

    def dynamic_slice(self, a: ir.Value, starts: Sequence[ir.Value], sizes: Sequence[int]) -> ir.Value:
        """A window of `a`; `starts` are scalars, clamped to where the window fits."""
        type_ = mlir_type(TensorType(tuple(sizes), tensor_type(a.type).dtype))
        return self._create("dynamic_slice", [a, *starts], type_, slice_sizes=_i64s(sizes))

    def windows(self, a: ir.Value, starts: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """A window of `a[i]` for each index i of its first dim, at row i of `starts`, clamped to where it fits."""
        type_ = tensor_type(a.type)
        rest = list(range(1, len(type_.shape)))
        return self._create(
            "gather",
            [a, starts],
            mlir_type(TensorType((type_.shape[0], *sizes), type_.dtype)),
            dimension_numbers=stablehlo.GatherDimensionNumbers.get(rest, [], [0], [0], rest, 1),
            slice_sizes=_i64s([1, *sizes]),
            indices_are_sorted=ir.BoolAttr.get(False),
        )

    def dynamic_update_slice(self, a: ir.Value, update: ir.Value, starts: Sequence[ir.Value]) -> ir.Value:
        """`a` with a window replaced; `starts` are scalars, clamped to where the window fits."""
        return self._create("dynamic_update_slice", [a, update, *starts], a.type)

    def _create(self, kind: str, operands: Sequence[ir.Value], result: ir.Type, **attributes: ir.Attribute) -> ir.Value:
        op = ir.Operation.create(f"stablehlo.{kind}", [result], list(operands), attributes)
        self.made.append(op)
        return op.results[0]


def i64(value: int) -> ir.Attribute:
    """The attribute of a number."""
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
