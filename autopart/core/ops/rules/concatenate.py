"""Tile mappings of concatenate.

x[i,j], y[i,k] -> z[i,j+k]     i  (0, 0) -> tile 0     the joined dim is blocked: its parts would have to move
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import common_dims
from autopart.core.ops.traits import Elementwise


@rule(
    "concatenate",
    traits=Elementwise(0, shown=("dimension",), passes=moved()),
    examples=(
        op("concatenate", "4x6xf32, 4x2xf32 -> 4x8xf32", "dimension = 1 : i64"),
        op("concatenate", "4x2xf32, 4x2xf32, 4x2xf32 -> 12x2xf32", "dimension = 0 : i64"),
        op("concatenate", "4x6xf32 -> 4x6xf32", "dimension = 1 : i64"),
    ),
)
def concatenate(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim but the joined one, unless nothing is joined to it."""
    joined = spec.attributes["dimension"] if len(spec.operands) > 1 else None
    return common_dims(spec, [d for d in range(len(spec.results[0].shape)) if d != joined])
