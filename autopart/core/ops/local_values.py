"""What a rule may do with the values of one device: the vocabulary of `localize`.

    def pad(local):                                            pad of a tile, low=2 on device 0 only
        first = local.compare(local.position(0), local.constant(0, "i32"), "EQ")
        return [local.select(first, local.pad(...), local.pad(...))]

A rule that says nothing localizes to the same op with local types. Other rules build what else a slice needs from these
few ops; the emitter gives them meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from autopart.core.op import OpSpec, TensorType, TileMapping

Value = Any
"""A device-local value; whatever the emitter works with."""


class LocalOp(Protocol):
    """One op inside its loop nest, as `localize` sees it: what it was globally, and what arrives on one device.

    `operands` are local values of `operand_types`; `localize` returns one value per entry of `result_types`.
    """

    spec: OpSpec
    mappings: Sequence[TileMapping]
    operands: Sequence[Value]
    operand_types: Sequence[TensorType]
    result_types: Sequence[TensorType]

    def ways(self, mapping: int) -> int:
        """Into how many slices the loops that take mapping number `mapping` cut: the product of their axes."""
        ...

    def position(self, mapping: int) -> Value:
        """i32 scalar: which of those slices this device holds; outer loops are major."""
        ...

    def clone(
        self,
        operands: Sequence[Value] | None = None,
        result_types: Sequence[TensorType] | None = None,
        **attributes: Any,
    ) -> list[Value]:
        """The op itself, regions included, on local operands; `attributes` replaces some, given as Python values."""
        ...

    def splat(self, operand: int) -> np.generic | None:
        """The value of an operand all of whose elements are the same constant; None where that is not known."""
        ...

    def type_of(self, value: Value) -> TensorType:
        """Shape and element type of a value."""
        ...

    def constant(self, value: Any, dtype: str, shape: Sequence[int] = ()) -> Value:
        """A constant: `value` everywhere, or a nested sequence of numbers of shape `shape`."""
        ...

    def iota(self, type_: TensorType, dim: int) -> Value:
        """0, 1, 2, ... along `dim`."""
        ...

    def binary(self, kind: str, a: Value, b: Value) -> Value:
        """An elementwise op of two operands of equal type ("add", "subtract", "multiply", "and", "maximum")."""
        ...

    def compare(self, a: Value, b: Value, direction: str) -> Value:
        """i1 values: `a` against `b`, direction EQ, NE, LT, LE, GT or GE."""
        ...

    def select(self, predicate: Value, a: Value, b: Value) -> Value:
        """`a` where the predicate (a scalar, or of a's shape) holds, else `b`."""
        ...

    def convert(self, a: Value, dtype: str) -> Value:
        """`a` with another element type."""
        ...

    def broadcast(self, a: Value, shape: Sequence[int], dims: Sequence[int] = ()) -> Value:
        """`a` broadcast to `shape`; dim i of `a` becomes dim `dims[i]`."""
        ...

    def reshape(self, a: Value, shape: Sequence[int]) -> Value:
        """`a` with another shape of as many elements."""
        ...

    def transpose(self, a: Value, permutation: Sequence[int]) -> Value:
        """`a` with its dims in another order: dim i of the result is dim `permutation[i]` of `a`."""
        ...

    def slice(self, a: Value, starts: Sequence[int], limits: Sequence[int]) -> Value:
        """`a[starts:limits]`, static bounds per dim."""
        ...

    def pad(self, a: Value, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """`a` with `value` before and after each dim."""
        ...

    def concatenate(self, parts: Sequence[Value], dim: int) -> Value:
        """The parts one after the other along `dim`."""
        ...

    def dynamic_slice(self, a: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
        """A window of `a`; `starts` are scalars, clamped to where the window fits."""
        ...

    def windows(self, a: Value, starts: Value, sizes: Sequence[int]) -> Value:
        """A window of `a[i]` for each index i of its first dim, at row i of `starts`, clamped to where it fits."""
        ...

    def replaced_windows(self, a: Value, updates: Value, starts: Value) -> Value:
        """`a` with a window of `a[i]` replaced by `updates[i]`, at row i of `starts`, where it fits."""
        ...

    def dynamic_update_slice(self, a: Value, update: Value, starts: Sequence[Value]) -> Value:
        """`a` with a window replaced; `starts` are scalars, clamped to where the window fits."""
        ...
