"""Tile mappings of ops that make a value from nothing.

    iota dim 0 : i32[i,j]      i  () -> tile 0    0, 1, 2, ... from where this device's slice starts
                               j  () -> tile 1
    constant : f32[i,j]        i  () -> tile 0    the slice of it

The numbers of a partition are those of one device: the program was written for one, so they are zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TensorType, TileMapping, splat_value
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.rules.positions import offset
from autopart.core.ops.traits import Constant, Elementwise


def _localize_iota(local: LocalOp) -> list[Value]:
    """Counted in i32 and then converted, so that narrow types round and wrap as they do in one piece."""
    dim, type_ = local.spec.attributes["iota_dimension"], local.result_types[0]
    for m, mapping in enumerate(local.mappings):
        if mapping.results == (dim,) and local.ways(m) > 1:
            start = local.broadcast(offset(local, m, type_.shape[dim]), type_.shape)
            counted = local.binary("add", local.iota(TensorType(type_.shape, "i32"), dim), start)
            return [local.convert(counted, type_.dtype)]
    return local.clone()


@rule(
    "iota",
    traits=Elementwise(
        0, cloned_per_use=True, shown=("iota_dimension",), counts=lambda spec: spec.attributes["iota_dimension"]
    ),
    localize=_localize_iota,
    examples=(
        op("iota", "-> 4x6xi32", "iota_dimension = 0 : i64"),
        op("iota", "-> 4x6xf32", "iota_dimension = 1 : i64"),
        op("iota", "-> 300xui8", "iota_dimension = 0 : i64"),
        op("iota", "-> 600xbf16", "iota_dimension = 0 : i64"),
        op("iota", "-> 6xcomplex<f32>", "iota_dimension = 0 : i64"),
    ),
)
def iota(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim."""
    return common_dims(spec, range(len(spec.results[0].shape)))


def _localize_constant(local: LocalOp) -> list[Value]:
    """A splat is made at local size; anything else is made whole and sliced."""
    type_ = local.result_types[0]
    if type_.shape == local.spec.results[0].shape:
        return local.clone()
    value = splat_value(local.spec)
    if value is not None:
        return [local.constant(value, type_.dtype, type_.shape)]
    (whole,) = local.clone(result_types=local.spec.results)
    starts = [local.constant(0, "i32") for _ in type_.shape]
    for m, mapping in enumerate(local.mappings):
        dim = mapping.results[0]
        if local.ways(m) > 1:
            starts[dim] = offset(local, m, type_.shape[dim])
    return [local.dynamic_slice(whole, starts, type_.shape)]


@rule(
    "constant",
    traits=Constant(cloned_per_use=True),
    localize=_localize_constant,
    examples=(
        op("constant", "-> 4x6xf32", "value = dense<2.5> : tensor<4x6xf32>"),
        op("constant", "-> 4x2xi32", "value = dense<[[1, 2], [3, 4], [5, 6], [7, 8]]> : tensor<4x2xi32>"),
        op("constant", "-> 4xbf16", "value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xbf16>"),
        op("constant", "-> 4xi1", "value = dense<true> : tensor<4xi1>"),
        op("constant", "-> 4xcomplex<f32>", "value = dense<(1.0, 2.0)> : tensor<4xcomplex<f32>>"),
        op("constant", "-> 2xcomplex<f32>", "value = dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f32>>"),
    ),
)
@rule(
    "chlo.constant",
    traits=Constant(cloned_per_use=True),
    localize=_localize_constant,
    examples=(op("chlo.constant", "-> 4xf32", "value = dense<2.0> : tensor<4xf32>"),),
)
def constant(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim."""
    return common_dims(spec, range(len(spec.results[0].shape)))


def _localize_number(local: LocalOp) -> list[Value]:
    return [local.constant(0, local.result_types[0].dtype)]


@rule(
    "partition_id",
    "replica_id",
    traits=Elementwise(0),
    localize=_localize_number,
    examples=lambda kind: [op(kind, "-> ui32")],
)
def device_number(spec: OpSpec) -> Iterable[TileMapping]:
    """A scalar: nothing to slice."""
    return ()
