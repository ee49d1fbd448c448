"""Tile mappings of broadcast_in_dim and the older broadcast.

x[i,1] -> y[n,i,j]    dims 0 and 1 of x become dims 1 and 2 of y

n  (_) -> tile 0      a new dim: every device makes its part from the whole operand
i  (0) -> tile 1
j  (_) -> tile 2      stretched from size 1
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import behind, with_batch
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Elementwise


def _spreads(spec: OpSpec) -> bool:
    """True where the last dim is not the operand's, and there are several numbers."""
    source, shape = spec.operands[0].shape, spec.results[0].shape
    kept = {r: source[d] for d, r in enumerate(spec.attributes["broadcast_dimensions"])}
    return math.prod(source) > 1 and shape[-1] > kept.get(len(shape) - 1, 1)


def _batched(local: LocalOp) -> list[Value] | None:
    dims = local.spec.attributes["broadcast_dimensions"]
    return local.clone([with_batch(local, 0)], broadcast_dimensions=[0, *behind(dims)])


@rule(
    "broadcast_in_dim",
    traits=Elementwise(
        0,
        spreads=_spreads,
        cheap_to_regather=True,
        cloned_per_use=True,
        shown=("broadcast_dimensions",),
        passes=moved(),
    ),
    examples=(
        op("broadcast_in_dim", "4x1xf32 -> 2x4x6xf32", "broadcast_dimensions = array<i64: 1, 2>"),
        op("broadcast_in_dim", "f32 -> 4x6xf32", "broadcast_dimensions = array<i64>"),
        op("broadcast_in_dim", "4x6xf32 -> 6x2x4xf32", "broadcast_dimensions = array<i64: 2, 0>"),
    ),
    batched=_batched,
)
def broadcast_in_dim(spec: OpSpec) -> Iterable[TileMapping]:
    """Every result dim; the operand is sliced where it has the dim at full size."""
    source, shape = spec.operands[0].shape, spec.results[0].shape
    own = {r: d for d, r in enumerate(spec.attributes["broadcast_dimensions"]) if source[d] == shape[r]}
    return [TileMapping((own.get(r, WHOLE),), (r,), size) for r, size in enumerate(shape)]


def _localize_broadcast(local: LocalOp) -> list[Value]:
    added = len(local.spec.attributes["broadcast_sizes"])
    return local.clone(broadcast_sizes=local.result_types[0].shape[:added])


@rule(
    "broadcast",
    traits=Elementwise(0, passes=moved()),
    localize=_localize_broadcast,
    examples=(op("broadcast", "4xf32 -> 6x2x4xf32", "broadcast_sizes = array<i64: 6, 2>"),),
)
def broadcast(spec: OpSpec) -> Iterable[TileMapping]:
    """New dims come first; the operand's follow."""
    added = len(spec.attributes["broadcast_sizes"])
    shape = spec.results[0].shape
    return [TileMapping((r - added if r >= added else WHOLE,), (r,), size) for r, size in enumerate(shape)]
