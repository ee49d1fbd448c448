"""Tile mappings of sort and top_k.

keys[i,j], values[i,j], sorted along j     i  (0, 0) -> tile 0, tile 0     j is blocked: elements change slices
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.batching import alike, all_batched
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import comparator, op
from autopart.core.ops.rules.factors import common_dims, exchanged
from autopart.core.ops.traits import Opaque, elements, largest

SORTED = 4_096
"""Rows shorter than this are sorted whole where the largest few are wanted: libtpu 0.0.51."""


def _along(spec: OpSpec) -> int:
    rank = len(spec.results[0].shape)
    return spec.attributes["dimension"] % rank if rank else 0


def _along_short(spec: OpSpec) -> int | None:
    shape = spec.operands[0].shape
    return len(shape) - 1 if shape[-1] < SORTED else None


def _comparisons(spec: OpSpec) -> float:
    """n log2 n per sorted line of n."""
    shape = spec.results[0].shape
    length = shape[spec.attributes["dimension"]] if shape else 1
    return elements(spec.results[0]) * math.ceil(math.log2(max(1, length)))


def _batched(local: LocalOp) -> list[Value] | None:
    return local.clone(all_batched(local), dimension=_along(local.spec) + 1)


@rule(
    "sort",
    defaults={"dimension": -1, "is_stable": False},
    traits=Opaque(
        flop=_comparisons,
        shown=("dimension",),
        flop_reason="comparisons of a line with itself; XLA's logarithm is that of the whole array",
        sorts=_along,
    ),
    examples=(
        op("sort", "4x6xf32 -> 4x6xf32", "dimension = 1 : i64, is_stable = true", comparator("LT", "f32")),
        op(
            "sort",
            "4x6xf32, 4x6xi32 -> 4x6xf32, 4x6xi32",
            "dimension = 0 : i64, is_stable = true",
            comparator("GT", "f32", "i32"),
        ),
    ),
    batched=_batched,
)
def sort(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim but the sorted one."""
    return exchanged(spec, common_dims(spec, [d for d in range(len(spec.results[0].shape)) if d != _along(spec)]))


@rule(
    "chlo.top_k",
    traits=Opaque(
        flop=lambda spec: largest(spec.operands),
        flop_reason="one comparison per element, with the least that is kept; XLA counts none",
        sorts=_along_short,
    ),
    examples=(op("chlo.top_k", "4x2x6xf32 -> 4x2x3xf32, 4x2x3xi32", "k = 3 : i64"),),
    batched=alike,
)
def top_k(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim but the last, along which it chooses."""
    return exchanged(spec, common_dims(spec, range(len(spec.results[0].shape) - 1)))
