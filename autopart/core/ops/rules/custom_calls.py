"""Tile mappings of custom calls: those that declare batch dims, and those known by name.

    lapack_spotrf_ffi: a[b,n,n] -> l[b,n,n], info[b]      b  (0) -> tile 0, tile 0
    Qr:                a[b,m,n] -> r[b,m,n], taus[b,n]    b  (0) -> tile 0, tile 0

jax writes the number of leading batch dims on each of its LAPACK, cuSolver and hipSolver calls, and foreign functions
declare it when they are vmapped; no list of names is needed for those.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import Example, batch_dims_of, register_custom_call, rule
from autopart.core.ops.rules.elementwise import ERF
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factorization_flop import factorization_flop
from autopart.core.ops.rules.factors import common_dims, exchanged
from autopart.core.ops.traits import Opaque, largest


def _lapack(target: str, types: str, config: str = "", *, feed: str | None = None) -> Example:
    """A batch of 4 matrices; LAPACK wants them column-major."""
    sides = [_layouts(side) for side in types.split("->")]
    attributes = (
        f'call_target_name = "{target}", backend_config = "", mhlo.backend_config = {{{config}}}, '
        f'mhlo.frontend_attributes = {{num_batch_dims = "1"}}, '
        f"operand_layouts = [{sides[0]}], result_layouts = [{sides[1]}]"
    )
    return op("custom_call", types, attributes, feed=(feed,), tolerance=1e-4)


def _layouts(side: str) -> str:
    ranks = [part.count("x") for part in side.split(",")]
    orders = {1: "dense<0>", 2: "dense<[1, 0]>", 3: "dense<[1, 2, 0]>"}
    return ", ".join(f"{orders[rank]} : tensor<{rank}xindex>" for rank in ranks)


_UNKNOWN_TO_XLA = "XLA knows no flop of a custom call"


@rule(
    "custom_call",
    traits=Opaque(flop=factorization_flop, flop_reason=_UNKNOWN_TO_XLA),
    examples=(
        _lapack("lapack_spotrf_ffi", "4x3x3xf32 -> 4x3x3xf32, 4xi32", "uplo = 76 : ui8", feed="spd"),
        _lapack("lapack_sgetrf_ffi", "4x3x3xf32 -> 4x3x3xf32, 4x3xi32, 4xi32"),
        _lapack("lapack_sgeqrf_ffi", "4x3x3xf32 -> 4x3x3xf32, 4x3xf32"),
        _lapack(
            "lapack_ssyevd_ffi",
            "4x3x3xf32 -> 4x3x3xf32, 4x3xf32, 4xi32",
            "mode = 86 : ui8, uplo = 76 : ui8",
            feed="spd",
        ),
        _lapack("lapack_sgesdd_ffi", "4x3x3xf32 -> 4x3x3xf32, 4x3xf32, 4x3x3xf32, 4x3x3xf32, 4xi32", "mode = 65 : ui8"),
        _lapack(
            "lapack_strsm_ffi",
            "4x3x3xf32, 4x3x2xf32 -> 4x3x2xf32",
            "diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8",
            feed="spd",
        ),
    ),
)
def declared_batch(spec: OpSpec) -> Iterable[TileMapping]:
    """The leading dims that the call declares to be a batch."""
    return exchanged(spec, common_dims(spec, range(batch_dims_of(spec))))


def _tpu(target: str, types: str, *feed: str | None) -> Example:
    return op("custom_call", types, f'call_target_name = "{target}", backend_config = ""', feed=feed, tolerance=1e-4)


_FACTORIZATION = Opaque(flop=factorization_flop, flop_reason=_UNKNOWN_TO_XLA)


@register_custom_call("Eigh", traits=_FACTORIZATION, examples=(_tpu("Eigh", "4x3x3xf32 -> 4x3x3xf32, 4x3xf32", "spd"),))
@register_custom_call("Qr", traits=_FACTORIZATION, examples=(_tpu("Qr", "2x4x5x3xf32 -> 2x4x5x3xf32, 2x4x3xf32"),))
@register_custom_call(
    "ProductOfElementaryHouseholderReflectors",
    traits=_FACTORIZATION,
    examples=(_tpu("ProductOfElementaryHouseholderReflectors", "4x5x3xf32, 4x3xf32 -> 4x5x3xf32"),),
)
@register_custom_call(
    "LuDecomposition",
    traits=_FACTORIZATION,
    examples=(_tpu("LuDecomposition", "4x5x3xf32 -> 4x5x3xf32, 4x3xi32, 4x5xi32"),),
)
def batch_of_matrices(spec: OpSpec) -> Iterable[TileMapping]:
    """All dims before the last two of the first operand, which are a matrix's. (jax writes these calls for TPUs.)"""
    return exchanged(spec, common_dims(spec, range(len(spec.operands[0].shape) - 2)))


_GREATER = (
    "func.func @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> "
    "{ %c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %c : tensor<i1> }"
)


@register_custom_call(
    "ApproxTopK",
    traits=Opaque(
        flop=lambda spec: largest(spec.operands),
        flop_reason="one comparison per element; XLA counts the sort that its fallback is",
    ),
    examples=(
        op(
            "custom_call",
            "4x16xf32, 4x16xi32, f32, i32 -> 4x2xf32, 4x2xi32",
            'call_target_name = "ApproxTopK", called_computations = [@greater], mhlo.backend_config = {'
            "aggregate_to_topk = true, is_fallback = true, recall_target = 0.95 : f32, reduction_dim = 1 : i64, "
            "reduction_input_size_override = -1 : i64, top_k = 2 : i64}",
            functions=_GREATER,
        ),
    ),
)
def approximate_top_k(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim but the one along which it chooses; the initial values, which come last, stay whole.

    None where the call does not say along which dim.
    """
    along = spec.attributes.get("mhlo.backend_config", {}).get("reduction_dim")
    if along is None:
        return
    count = len(spec.results)
    for d, size in enumerate(spec.results[0].shape):
        if d != along:
            yield TileMapping((d,) * count + (WHOLE,) * count, (d,) * count, size)


_COPY = Opaque(flop=lambda spec: 0.0, passes=moved(), flop_reason=_UNKNOWN_TO_XLA)


def _call(target: str, types: str, more: str = "") -> Example:
    return op("custom_call", types, f'call_target_name = "{target}"{more}', tolerance=2e-5)


@register_custom_call(
    "mhlo.erf", traits=ERF, examples=(_call("mhlo.erf", "4x6xf32 -> 4x6xf32", ", mhlo.attributes = {}"),)
)
@register_custom_call(
    "annotate_device_placement", traits=_COPY, examples=(_call("annotate_device_placement", "4x6xf32 -> 4x6xf32"),)
)
@register_custom_call("LayoutConstraint", traits=_COPY, examples=(_call("LayoutConstraint", "4x6xf32 -> 4x6xf32"),))
def elementwise_call(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim. (jax writes `erf` so in modules that older compilers should read.)"""
    return common_dims(spec, range(len(spec.results[0].shape)))


@register_custom_call(
    "mhlo.topk",
    traits=Opaque(flop=lambda spec: largest(spec.operands), flop_reason="one comparison per element; XLA counts none"),
    examples=(_call("mhlo.topk", "4x6xf32 -> 4x2xf32, 4x2xi32", ", mhlo.attributes = {k = 2 : i64, largest = true}"),),
)
def top_k_call(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim but the last, along which it chooses."""
    return exchanged(spec, common_dims(spec, range(len(spec.results[0].shape) - 1)))
