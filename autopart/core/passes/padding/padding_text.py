"""The ops that padding puts into a program, as lines of MLIR that make %y of %x.

pad       %x f32[51,16]  ->  %y f32[52,16]     zeros at the end
cut       %x f32[52,16]  ->  %y f32[51,16]     without what was added
mask      %x f32[8,52]   ->  %y f32[8,52]      with another number where it was added
hold_back %x i32[6,1]    ->  %y i32[6,1]       indices, none past a bound
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autopart.core.jax_internals import numpy_dtype
from autopart.core.op import TensorType
from autopart.core.passes.rewritten_as import mlir_type


def pad(before: TensorType, after: TensorType, low: Sequence[int] = ()) -> list[str]:
    """Zeros at the ends of the dims that are longer; `low` of them before the beginnings, or fewer elements there."""
    low = low or [0] * len(before.shape)
    zeros = _list([0] * len(before.shape))
    more = _list([n - m - k for n, m, k in zip(after.shape, before.shape, low, strict=True)])
    return [
        constant("%z", before.dtype, 0),
        f'%y = "stablehlo.pad"(%x, %z) {{edge_padding_low = {_list(low)}, edge_padding_high = {more},'
        f" interior_padding = {zeros}}} : ({mlir_type(before)}, {_scalar(before.dtype)}) -> {mlir_type(after)}",
    ]


def cut(before: TensorType, after: TensorType) -> list[str]:
    """The beginning of each dim."""
    zeros, ones = ([n] * len(before.shape) for n in (0, 1))
    return [
        f'%y = "stablehlo.slice"(%x) {{start_indices = {_list(zeros)}, limit_indices = {_list(after.shape)},'
        f" strides = {_list(ones)}}} : ({mlir_type(before)}) -> {mlir_type(after)}"
    ]


def mask(type_: TensorType, dim: int, size: int, value: Any) -> list[str]:
    """`value` from place `size` of a dim on."""
    whole, places, flags = (mlir_type(TensorType(type_.shape, dtype)) for dtype in (type_.dtype, "i32", "i1"))
    spread = "broadcast_dimensions = array<i64>"
    return [
        f'%i = "stablehlo.iota"() {{iota_dimension = {dim} : i64}} : () -> {places}',
        constant("%n", "i32", size),
        f'%m = "stablehlo.broadcast_in_dim"(%n) {{{spread}}} : (tensor<i32>) -> {places}',
        f'%p = "stablehlo.compare"(%i, %m) {{comparison_direction = #stablehlo<comparison_direction LT>}}'
        f" : ({places}, {places}) -> {flags}",
        constant("%z", type_.dtype, value),
        f'%w = "stablehlo.broadcast_in_dim"(%z) {{{spread}}} : ({_scalar(type_.dtype)}) -> {whole}',
        f'%y = "stablehlo.select"(%p, %x, %w) : ({flags}, {whole}, {whole}) -> {whole}',
    ]


def hold_back(type_: TensorType, bounds: Sequence[int], dim: int) -> list[str]:
    """Indices at most `bounds`, one for each entry along `dim`; of one bound where `dim` is no dim."""
    whole, own = mlir_type(type_), TensorType((len(bounds),) if dim < len(type_.shape) else (), type_.dtype)
    spread = f": {dim}" if own.shape else ""
    value, few = (list(bounds) if own.shape else bounds[0]), mlir_type(own)
    return [
        f'%n = "stablehlo.constant"() {{value = dense<{value}> : {few}}} : () -> {few}',
        f'%m = "stablehlo.broadcast_in_dim"(%n) {{broadcast_dimensions = array<i64{spread}>}} : ({few}) -> {whole}',
        f'%y = "stablehlo.minimum"(%x, %m) : ({whole}, {whole}) -> {whole}',
    ]


def _list(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if len(numbers) else "array<i64>"


def _scalar(dtype: str) -> str:
    return mlir_type(TensorType((), dtype))


def constant(name: str, dtype: str, value: Any) -> str:
    """A line that makes a number."""
    type_ = _scalar(dtype)
    return f'{name} = "stablehlo.constant"() {{value = dense<{_literal(dtype, value)}> : {type_}}} : () -> {type_}'


def _literal(dtype: str, value: Any) -> str:
    if dtype == "i1":
        return "true" if value else "false"
    if dtype.startswith("complex"):
        return f"({float(value)}, 0.0)"
    if dtype.startswith(("i", "ui")):
        return str(int(value))
    bits = np.array(value).astype(numpy_dtype(dtype))
    return f"0x{int.from_bytes(bits.tobytes(), 'little'):0{2 * bits.itemsize}X}"
