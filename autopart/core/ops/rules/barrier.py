"""Tile mappings of optimization_barrier.

    x[i], y[j] -> x, y       i  (0, _) -> tile 0, any       j  (_, 0) -> any, tile 0

Its operands have nothing to do with each other: each dim of each is a factor of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import ANY, WHOLE, OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import Omission, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import View


@rule(
    "optimization_barrier",
    traits=View(fence=True, passes=moved()),
    examples=(
        op("optimization_barrier", "4x6xf32 -> 4x6xf32"),
        op("optimization_barrier", "4x6xf32, 8xi32 -> 4x6xf32, 8xi32"),
    ),
    omissions=(
        Omission(
            "dims of several operands may be sliced together, in every combination",
            lambda spec, mapping: sum(d != WHOLE for d in mapping.operands) > 1,
        ),
    ),
)
def optimization_barrier(spec: OpSpec) -> Iterable[TileMapping]:
    """Each dim of each operand; the other operands stay as they are."""
    count = len(spec.operands)
    for position, type_ in enumerate(spec.operands):
        for d, size in enumerate(type_.shape):
            operands = tuple(d if i == position else WHOLE for i in range(count))
            results = tuple(d if i == position else ANY for i in range(count))
            yield TileMapping(operands, results, size)
