"""Tile mappings of reverse.

x[i,j] -> y[i,-j]     i  (0) -> tile 0     j  (1) -> tile 1     the first slice goes to the last device
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.batching import behind, with_batch
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.rules.stretches import MOST_STRETCHED, stretched
from autopart.core.ops.traits import Elementwise
from autopart.core.stretch import Stretch


def _batched(local: LocalOp) -> list[Value] | None:
    return local.clone([with_batch(local, 0)], dimensions=behind(local.spec.attributes["dimensions"]))


@rule(
    "reverse",
    traits=Elementwise(0, shown=("dimensions",), passes=moved(), reverses=True),
    examples=(
        op("reverse", "4x6xf32 -> 4x6xf32", "dimensions = array<i64: 1>"),
        op("reverse", "4x2x8xi32 -> 4x2x8xi32", "dimensions = array<i64: 0, 2>"),
    ),
    batched=_batched,
)
def reverse(spec: OpSpec) -> Iterable[TileMapping]:
    """The dims that keep their order; those that are turned, with tiles that change places."""
    turned, shape = spec.attributes["dimensions"], spec.results[0].shape
    yield from common_dims(spec, [d for d in range(len(shape)) if d not in turned])
    for d in turned[:MOST_STRETCHED]:
        yield stretched(spec, {0: (d, Stretch(shape[d], 1 - shape[d], -1))}, d)
