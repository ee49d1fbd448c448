"""Tile mappings of concatenate.

x[i,j], y[i,k] -> z[i,j+k]     i    (0, 0) -> tile 0
                               j+k  (1, 1) -> tile 1     each device is sent what its tile has of each operand
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from autopart.core.op import OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import all_batched
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.rules.stretches import reads_of, stretched
from autopart.core.ops.traits import Elementwise
from autopart.core.stretch import Stretch


def _localize(local: LocalOp) -> list[Value]:
    reads = list(reads_of(local))
    return [_chosen(local)] if reads else local.clone()


def _chosen(local: LocalOp) -> Value:
    """Of as many elements of each operand as the tile has, those of the operand whose place it is."""
    number = next(read.mapping for read in reads_of(local))
    joined, type_ = local.spec.attributes["dimension"], local.result_types[0]
    tile = local.constant(type_.shape[joined], "i32")
    start = local.broadcast(local.binary("multiply", local.position(number), tile), type_.shape)
    place = local.binary("add", local.iota(TensorType(type_.shape, "i32"), joined), start)
    ends = itertools.accumulate(t.shape[joined] for t in local.spec.operands)
    *before, chosen = zip(local.operands, ends, strict=True)
    chosen = chosen[0]
    for value, end in reversed(before):
        chosen = local.select(local.compare(place, local.constant(end, "i32", type_.shape), "LT"), value, chosen)
    return chosen


def _batched(local: LocalOp) -> list[Value] | None:
    return local.clone(all_batched(local), dimension=local.spec.attributes["dimension"] + 1)


@rule(
    "concatenate",
    traits=Elementwise(0, joins=True, shown=("dimension",), passes=moved()),
    localize=_localize,
    examples=(
        op("concatenate", "4x6xf32, 4x2xf32 -> 4x8xf32", "dimension = 1 : i64"),
        op("concatenate", "4x2xf32, 4x2xf32, 4x2xf32 -> 12x2xf32", "dimension = 0 : i64"),
        op("concatenate", "4x6xf32 -> 4x6xf32", "dimension = 1 : i64"),
        op("concatenate", "2x4xi32, 2x8xi32 -> 2x12xi32", "dimension = 1 : i64"),
    ),
    batched=_batched,
)
def concatenate(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim; the joined one by what its tiles read of each operand, unless nothing is joined to it."""
    joined, shape = spec.attributes["dimension"], spec.results[0].shape
    is_one = len(spec.operands) == 1
    yield from common_dims(spec, [d for d in range(len(shape)) if d != joined or is_one])
    if not is_one:
        sizes = [t.shape[joined] for t in spec.operands]
        starts = itertools.accumulate(sizes[:-1], initial=0)
        yield stretched(spec, {k: (joined, Stretch(shape[joined], start)) for k, start in enumerate(starts)}, joined)
