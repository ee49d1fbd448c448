"""Tile mappings of reduce.

    reduce add over j:  x[i,j], init -> y[i]

    i  (0, _) -> tile 0
    j  (1, _) -> sum       each device reduces its part

The initial value must count once, and for sure. (StableHLO wants it to be the identity; XLA takes others too, and drops
them where one element is reduced, which a part may be though the whole is not.) So each part of a reduced dim starts
from the identity, and the initial value is combined with what the part left: by the first part for a sum or product, by
all of them for the others.

    max of 3 1 | 4, from 5      ->      part 0   max(max(-inf, 3, 1), 5)        part 1   max(4, 5)

A reducer that is no plain sum, product, maximum or minimum (argmax, say), and no "and" or "or" of booleans, has no
collective: dims that it reduces are blocked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autopart.core.doors.jax_internals import least_number, numpy_dtype
from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import behind, is_batched, with_batch
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import BITWISE, combined_by_reducer, reduction_codes
from autopart.core.ops.rules.positions import is_first
from autopart.core.ops.traits import Reduction

_COMBINE = {SUM: "add", MUL: "multiply", MAX: "maximum", MIN: "minimum", AND: "and", OR: "or"}
_COUNTED_ONCE = (SUM, MUL)


def reduced_in_parts(local: LocalOp, inputs: Sequence[Value] | None = None, **attributes: Any) -> list[Value]:
    """The op on its parts, or on `inputs`, in which the initial values count once; `attributes` as in `clone`."""
    count = len(local.result_types)
    inputs, inits = local.operands[:count] if inputs is None else inputs, list(local.operands[count:])
    split = [m for m, mapping in enumerate(local.mappings) if mapping.results[0] in _COMBINE and local.ways(m) > 1]
    if not split:
        return local.clone([*inputs, *inits], **attributes)
    codes = local.mappings[split[0]].results
    late = [i for i, code in enumerate(codes) if not _is_identity(local, i, code)]
    for i in late:
        dtype = local.operand_types[count + i].dtype
        inits[i] = local.constant(identity(codes[i], dtype), dtype)
    results = local.clone([*inputs, *inits], **attributes)
    for i in late:
        results[i] = _combined(local, results[i], local.operands[count + i], codes[i], split)
    return results


def _is_identity(local: LocalOp, i: int, code: int) -> bool:
    """True if initial value `i` is known to change nothing."""
    count = len(local.result_types)
    known = local.splat(count + i)
    return known is not None and bool(known == identity(code, local.operand_types[count + i].dtype))


def _combined(local: LocalOp, result: Value, init: Value, code: int, split: Sequence[int]) -> Value:
    """What a part left, combined with the initial value where it is this part's to count."""
    type_ = local.type_of(result)
    if code in _COUNTED_ONCE:
        init = local.select(is_first(local, split), init, local.constant(identity(code, type_.dtype), type_.dtype))
    return local.binary(_COMBINE[code], result, local.broadcast(init, type_.shape) if type_.shape else init)


def identity(code: int, dtype: str) -> Any:
    """The value that a reduction leaves as it is, as a number of element type `dtype`."""
    if code in (SUM, MUL):
        return 0 if code == SUM else 1
    if dtype == "i1":
        return code in (AND, MIN)
    if not dtype.startswith(("i", "ui")):
        return _least_float(dtype) if code == MAX else -_least_float(dtype)
    bits, signed = int(dtype.removeprefix("ui").removeprefix("i")), not dtype.startswith("ui")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return low if code == MAX else high


def _least_float(dtype: str) -> float:
    """Minus infinity, or the least number of a type that has no infinities."""
    numeric = numpy_dtype(dtype)
    return -math.inf if np.isinf(np.array(-math.inf).astype(numeric)) else least_number(numeric)


def _localize(local: LocalOp) -> list[Value]:
    return reduced_in_parts(local)


_ARGMAX = (
    "^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>): "
    '%p = "stablehlo.compare"(%a, %b) {comparison_direction = #stablehlo<comparison_direction GE>} '
    ": (tensor<f32>, tensor<f32>) -> tensor<i1> "
    '%v = "stablehlo.select"(%p, %a, %b) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32> '
    '%k = "stablehlo.select"(%p, %i, %j) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32> '
    '"stablehlo.return"(%v, %k) : (tensor<f32>, tensor<i32>) -> ()'
)


def _over(*dims: int) -> str:
    return f"dimensions = array<i64: {', '.join(map(str, dims))}>"


def _batched(local: LocalOp) -> list[Value] | None:
    """Initial values that differ along the batch are combined with what the reduction leaves."""
    count, spec = len(local.spec.results), local.spec
    late = [k for k in range(count) if is_batched(local, count + k)]
    codes = reduction_codes(spec.region, spec.results) or ()
    if late and not codes:
        return None
    operands, dims = (
        [*(with_batch(local, k) for k in range(count)), *local.operands[count:]],
        spec.attributes["dimensions"],
    )
    for k in late:
        dtype = spec.operands[count + k].dtype
        operands[count + k] = local.constant(identity(codes[k], dtype), dtype)
    results = local.clone(operands, dimensions=behind(dims))
    for k in late:
        init = local.broadcast(local.operands[count + k], local.result_types[k].shape, [0])
        results[k] = local.binary(_COMBINE[codes[k]], results[k], init)
    return results


@rule(
    "reduce",
    traits=Reduction(
        passes=combined_by_reducer,
        shown=("dimensions",),
        flop_reason="one operation per element of the largest operand; XLA counts the reducer's, less one",
    ),
    localize=_localize,
    examples=(
        op("reduce", "4x6xf32, f32 -> 4xf32", _over(1), reducer("add f32"), feed=(None, (0.0, 0.0))),
        op("reduce", "4x26xf32, f32 -> 4xf32", _over(1), reducer("add f32")),
        op("reduce", "4x6x2xi32, i32 -> 6xi32", _over(0, 2), reducer("add i32"), feed=(None, (0, 1))),
        op("reduce", "4x6xf32, f32 -> 6xf32", _over(0), reducer("maximum f32"), feed=(None, (1, 4))),
        op("reduce", "4x6xf32, f32 -> 6xf32", _over(0), reducer("minimum f32"), feed=(None, (-4, -1))),
        op("reduce", "2x4xi32, i32 -> 2xi32", _over(1), reducer("multiply i32"), feed=((1, 4), (1, 2))),
        op("reduce", "2x26xi32, i32 -> 2xi32", _over(1), reducer("multiply i32"), feed=((1, 4), (2, 5))),
        op("reduce", "4x6xi32, i32 -> 6xi32", _over(0), reducer("and i32"), feed=((0, 99), (-1, 0))),
        op("reduce", "4x6xi1, i1 -> 6xi1", _over(0), reducer("or i1"), feed=(None, (0, 1))),
        op("reduce", "4x6xi1, i1 -> 6xi1", _over(0), reducer("add i1"), feed=(None, (0, 1))),
        op("reduce", "4x6xui8, ui8 -> 6xui8", _over(0), reducer("maximum ui8"), feed=(None, (3, 8))),
        op("reduce", "4x6xf32, f32 -> 6xf32", _over(0), reducer("add f32"), feed=(None, (3, 8))),
        op("reduce", "4x6xi1, i1 -> 6xi1", _over(0), reducer("and i1"), feed=(None, (0, 1))),
        op(
            "reduce",
            "4x6xf32, 4x6xi32, f32, i32 -> 4xf32, 4xi32",
            _over(1),
            reducer("add f32", "maximum i32"),
            feed=(None, None, (0.0, 0.0), (-9, -8)),
        ),
        op("reduce", "4x6xf32, 4x6xi32, f32, i32 -> 4xf32, 4xi32", _over(1), _ARGMAX, feed=(None, None, (-9, -9))),
    ),
    omissions=(BITWISE,),
    batched=_batched,
)
def reduce(spec: OpSpec) -> Iterable[TileMapping]:
    """Kept dims tile; reduced dims combine by the reducer, where it has a collective."""
    count = len(spec.results)
    reduced = set(spec.attributes["dimensions"])
    codes = reduction_codes(spec.region, spec.results)
    return _mappings(spec, count, reduced, codes)


def _mappings(spec: OpSpec, count: int, reduced: set[int], codes: Sequence[int] | None) -> Iterable[TileMapping]:
    shape = spec.operands[0].shape
    kept = [d for d in range(len(shape)) if d not in reduced]
    for d, size in enumerate(shape):
        operands = (d,) * count + (WHOLE,) * count
        if d in reduced:
            if codes is not None:
                yield TileMapping(operands, tuple(codes), size)
        else:
            yield TileMapping(operands, (kept.index(d),) * count, size)
