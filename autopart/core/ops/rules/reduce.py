"""Tile mappings of reduce.

    reduce add over j:  x[i,j], init -> y[i]

    i  (0, _) -> tile 0
    j  (1, _) -> sum       each device reduces its part

Every part starts from the initial value, which must count once: of a sum or product only the first part starts from it,
the others from 0 or 1. (StableHLO wants it to be the identity; XLA takes others too, and drops them where one element
is reduced.) A reducer that is no plain sum, product, maximum, minimum, and, or (argmax, say) has no collective: dims
that it reduces are blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autopart.core.op import MUL, REDUCTION_NAMES, SUM, WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import reduction_codes
from autopart.core.ops.rules.positions import is_first

_IDENTITY = {SUM: 0, MUL: 1}


def initial_values(local: LocalOp) -> list[Value]:
    """The last half of the operands, each replaced by the identity on all but the first part of a sum or product."""
    count = len(local.result_types)
    inits = list(local.operands[count:])
    reducing = [m for m, mapping in enumerate(local.mappings) if mapping.results[0] in REDUCTION_NAMES]
    for i, init in enumerate(inits):
        split = [m for m in reducing if local.ways(m) > 1 and local.mappings[m].results[i] in _IDENTITY]
        if not split:
            continue
        identity = _IDENTITY[local.mappings[split[0]].results[i]]
        if local.splat(count + i) == identity:
            continue
        type_ = local.operand_types[count + i]
        neutral = local.constant(identity, type_.dtype, type_.shape)
        inits[i] = local.select(is_first(local, split), init, neutral)
    return inits


def _localize(local: LocalOp) -> list[Value]:
    count = len(local.result_types)
    return local.clone([*local.operands[:count], *initial_values(local)])


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


@rule(
    "reduce",
    localize=_localize,
    examples=(
        op("reduce", "4x6xf32, f32 -> 4xf32", _over(1), reducer("add f32"), feed=(None, (0.0, 0.0))),
        op("reduce", "4x26xf32, f32 -> 4xf32", _over(1), reducer("add f32")),
        op("reduce", "4x6x2xi32, i32 -> 6xi32", _over(0, 2), reducer("add i32"), feed=(None, (0, 1))),
        op("reduce", "4x6xf32, f32 -> 6xf32", _over(0), reducer("maximum f32"), feed=(None, (-9, -9))),
        op("reduce", "4x6xf32, f32 -> 6xf32", _over(0), reducer("minimum f32"), feed=(None, (9, 9))),
        op("reduce", "2x4xi32, i32 -> 2xi32", _over(1), reducer("multiply i32"), feed=((1, 4), (1, 2))),
        op("reduce", "2x26xi32, i32 -> 2xi32", _over(1), reducer("multiply i32"), feed=((1, 4), (2, 5))),
        op("reduce", "4x6xi32, i32 -> 6xi32", _over(0), reducer("and i32"), feed=(None, (-1, 0))),
        op("reduce", "4x6xi1, i1 -> 6xi1", _over(0), reducer("or i1"), feed=(None, (0, 1))),
        op("reduce", "4x6xi1, i1 -> 6xi1", _over(0), reducer("add i1"), feed=(None, (0, 1))),
        op(
            "reduce",
            "4x6xf32, 4x6xi32, f32, i32 -> 4xf32, 4xi32",
            _over(1),
            reducer("add f32", "maximum i32"),
            feed=(None, None, (0.0, 0.0), (-9, -8)),
        ),
        op("reduce", "4x6xf32, 4x6xi32, f32, i32 -> 4xf32, 4xi32", _over(1), _ARGMAX, feed=(None, None, (-9, -9))),
    ),
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
