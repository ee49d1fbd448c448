"""StableHLO of the few ops from which passes, rules and redistributions build what they need.

    values = MlirValues()
    values.concatenate([values.slice(a, [0], [2]), values.constant(0, "f32", [2])], 0)

It works at MLIR's current insertion point and location; `made` has what was emitted. What a value is, a subclass may
say otherwise (`core/passes/new_ops.py`: numbers of a program's values).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autopart.core.doors.jax_internals import ir, numpy_dtype, stablehlo
from autopart.core.op import TensorType
from autopart.core.op_spec_import import tensor_type


def mlir_type(type_: TensorType) -> ir.Type:
    """The type in the current context."""
    return ir.RankedTensorType.get(type_.shape, ir.Type.parse(type_.dtype))


class MlirValues:
    """The vocabulary of `LocalOp` over MLIR values, as far as it does not depend on the op."""

    def __init__(self) -> None:
        self.made: list[ir.Operation] = []

    def type_of(self, value: Any) -> TensorType:
        """Shape and element type of a value."""
        return tensor_type(value.type)

    def constant(self, value: Any, dtype: str, shape: Sequence[int] = ()) -> Any:
        """A constant: `value` everywhere, or a nested sequence of numbers of shape `shape`."""
        if dtype.startswith("complex"):
            part = dtype.removeprefix("complex<").removesuffix(">")
            parts = [self.constant(np.real(value), part, shape), self.constant(np.imag(value), part, shape)]
            return self._create("complex", parts, TensorType(tuple(shape), dtype))
        made = TensorType(tuple(shape), dtype)
        if np.ndim(value) == 0:
            return self._create(
                "constant", [], made, value=ir.DenseElementsAttr.get_splat(mlir_type(made), _scalar(value, dtype))
            )
        array = np.ascontiguousarray(np.asarray(value, numpy_dtype(dtype)).reshape(tuple(shape)))
        if array.dtype.kind == "V":  # bf16 and narrower, of which Python's buffers know nothing
            return self.convert(self.constant(array.astype(np.float32), "f32", shape), dtype)
        element = ir.Type.parse(dtype) if dtype.startswith("ui") else None  # numbers without a sign are signless else
        made_of = ir.DenseElementsAttr.get(cast(Any, array), type=element, shape=list(shape))
        return self._create("constant", [], made, value=made_of)

    def iota(self, type_: TensorType, dim: int) -> Any:
        """0, 1, 2, ... along `dim`."""
        return self._create("iota", [], type_, iota_dimension=i64(dim))

    def binary(self, kind: str, a: Any, b: Any) -> Any:
        """An elementwise op of two operands of equal type."""
        return self._create(kind, [a, b], self.type_of(a))

    def compare(self, a: Any, b: Any, direction: str) -> Any:
        """i1 values: `a` against `b`."""
        made = TensorType(self.type_of(a).shape, "i1")
        return self._create("compare", [a, b], made, comparison_direction=_direction(direction))

    def select(self, predicate: Any, a: Any, b: Any) -> Any:
        """`a` where the predicate holds, else `b`."""
        return self._create("select", [predicate, a, b], self.type_of(a))

    def convert(self, a: Any, dtype: str) -> Any:
        """`a` with another element type; `a` itself if it has it."""
        type_ = self.type_of(a)
        return a if type_.dtype == dtype else self._create("convert", [a], TensorType(type_.shape, dtype))

    def bitcast(self, a: Any, dtype: str) -> Any:
        """The bits of `a` as another element type of the same length."""
        return self._create("bitcast_convert", [a], TensorType(self.type_of(a).shape, dtype))

    def broadcast(self, a: Any, shape: Sequence[int], dims: Sequence[int] = ()) -> Any:
        """`a` broadcast to `shape`; dim i of `a` becomes dim `dims[i]`."""
        made = TensorType(tuple(shape), self.type_of(a).dtype)
        return self._create("broadcast_in_dim", [a], made, broadcast_dimensions=i64s(dims))

    def reshape(self, a: Any, shape: Sequence[int]) -> Any:
        """`a` with another shape of as many elements; `a` itself if it has it."""
        type_ = self.type_of(a)
        same = type_.shape == tuple(shape)
        return a if same else self._create("reshape", [a], TensorType(tuple(shape), type_.dtype))

    def transpose(self, a: Any, permutation: Sequence[int]) -> Any:
        """`a` with its dims in another order."""
        type_ = self.type_of(a)
        made = TensorType(tuple(type_.shape[d] for d in permutation), type_.dtype)
        return self._create("transpose", [a], made, permutation=i64s(permutation))

    def slice(self, a: Any, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] = ()) -> Any:
        """`a[starts:limits:strides]`, static bounds per dim."""
        steps = strides or [1] * len(starts)
        shape = (-((start - limit) // step) for start, limit, step in zip(starts, limits, steps, strict=True))
        return self._create(
            "slice",
            [a],
            TensorType(tuple(shape), self.type_of(a).dtype),
            start_indices=i64s(starts),
            limit_indices=i64s(limits),
            strides=i64s(steps),
        )

    def pad(self, a: Any, value: Any, low: Sequence[int], high: Sequence[int], between: Sequence[int] = ()) -> Any:
        """`a` with `value` before and after each dim, and `between` of it between elements."""
        type_, gaps = self.type_of(a), between or [0] * len(low)
        sizes = zip(type_.shape, low, high, gaps, strict=True)
        shape = tuple(lo + n + max(n - 1, 0) * gap + hi for n, lo, hi, gap in sizes)
        return self._create(
            "pad",
            [a, value],
            TensorType(shape, type_.dtype),
            edge_padding_low=i64s(low),
            edge_padding_high=i64s(high),
            interior_padding=i64s(gaps),
        )

    def concatenate(self, parts: Sequence[Any], dim: int) -> Any:
        """The parts one after the other along `dim`; a part that is alone itself."""
        if len(parts) == 1:
            return parts[0]
        types = [self.type_of(p) for p in parts]
        shape = list(types[0].shape)
        shape[dim] = sum(t.shape[dim] for t in types)
        return self._create("concatenate", parts, TensorType(tuple(shape), types[0].dtype), dimension=i64(dim))

    def dynamic_slice(self, a: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
        """A window of `a`; `starts` are scalars, clamped to where the window fits."""
        made = TensorType(tuple(sizes), self.type_of(a).dtype)
        return self._create("dynamic_slice", [a, *starts], made, slice_sizes=i64s(sizes))

    def take(self, a: Any, indices: Any, dim: int) -> Any:
        """The elements of a dim at `indices`, of one dim themselves."""
        type_, [count] = self.type_of(a), self.type_of(indices).shape
        rest = [d for d in range(len(type_.shape)) if d != dim]
        shape, sizes = ([n if d == dim else m for d, m in enumerate(type_.shape)] for n in (count, 1))
        return self._create(
            "gather",
            [a, indices],
            TensorType(tuple(shape), type_.dtype),
            dimension_numbers=stablehlo.GatherDimensionNumbers.get(rest, [dim], [], [], [dim], 1),
            slice_sizes=i64s(sizes),
            indices_are_sorted=ir.BoolAttr.get(False),
        )

    def windows(self, a: Any, starts: Any, sizes: Sequence[int]) -> Any:
        """A window of `a[i]` for each index i of its first dim, at row i of `starts`, clamped to where it fits."""
        type_ = self.type_of(a)
        rest = list(range(1, len(type_.shape)))
        return self._create(
            "gather",
            [a, starts],
            TensorType((type_.shape[0], *sizes), type_.dtype),
            dimension_numbers=stablehlo.GatherDimensionNumbers.get(rest, [], [0], [0], rest, 1),
            slice_sizes=i64s([1, *sizes]),
            indices_are_sorted=ir.BoolAttr.get(False),
        )

    def dynamic_update_slice(self, a: Any, update: Any, starts: Sequence[Any]) -> Any:
        """`a` with a window replaced; `starts` are scalars, clamped to where the window fits."""
        return self._create("dynamic_update_slice", [a, update, *starts], self.type_of(a))

    def _create(self, kind: str, operands: Sequence[Any], result: TensorType, **attributes: ir.Attribute) -> Any:
        op = ir.Operation.create(f"stablehlo.{kind}", [mlir_type(result)], list(operands), attributes)
        self.made.append(op)
        return op.results[0]


def i64(value: int) -> ir.Attribute:
    """The attribute of a number."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def i64s(values: Sequence[int]) -> ir.Attribute:
    """The attribute of numbers."""
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
