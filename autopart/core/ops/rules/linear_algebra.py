"""Tile mappings of cholesky and triangular_solve: batch dims, and the columns of a right-hand side.

a[b,n,n] x = y[b,n,k] -> x[b,n,k]     b  (0, 0) -> tile 0     k  (_, 2) -> tile 2
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import alike
from autopart.core.ops.passages import linear_in
from autopart.core.ops.rule import Example, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims, exchanged
from autopart.core.ops.traits import Opaque, elements

_NEAR = 1e-4


@rule(
    "cholesky",
    defaults={"lower": False},
    traits=Opaque(flop=lambda spec: elements(spec.operands[0]) * spec.operands[0].shape[-1] / 3),
    batched=alike,
    examples=(op("cholesky", "4x3x3xf32 -> 4x3x3xf32", "lower = true", feed=("spd",), tolerance=_NEAR),),
)
def cholesky(spec: OpSpec) -> Iterable[TileMapping]:
    """Batch dims."""
    return exchanged(spec, common_dims(spec, range(len(spec.results[0].shape) - 2)))


def _solve(types: str, side: str) -> Example:
    attributes = (
        f"left_side = {side}, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>"
    )
    return op("triangular_solve", types, attributes, feed=("spd",), tolerance=_NEAR)


@rule(
    "triangular_solve",
    traits=Opaque(
        flop=lambda spec: elements(spec.operands[1]) * spec.operands[0].shape[-1],
        passes=linear_in(1),
        flop_reason="n n per right-hand side; XLA counts the zero half of the matrix too",
    ),
    batched=alike,
    examples=(
        _solve("4x3x3xf32, 4x3x2xf32 -> 4x3x2xf32", "true"),
        _solve("4x3x3xf32, 4x2x3xf32 -> 4x2x3xf32", "false"),
    ),
)
def triangular_solve(spec: OpSpec) -> Iterable[TileMapping]:
    """Batch dims, and the right-hand sides, which are solved one by one."""
    rank = len(spec.results[0].shape)
    free = rank - 1 if spec.attributes["left_side"] else rank - 2
    columns = TileMapping((WHOLE, free), (free,), spec.results[0].shape[free])
    return exchanged(spec, [*common_dims(spec, range(rank - 2)), columns])
