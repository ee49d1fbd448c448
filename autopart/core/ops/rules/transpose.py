"""Tile mappings of transpose.

x[i,j,k] -> y[k,i,j]    permutation = [2, 0, 1]

k  (2) -> tile 0        i  (0) -> tile 1        j  (1) -> tile 2
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Elementwise


def _turns(spec: OpSpec) -> bool:
    permutation = spec.attributes["permutation"]
    return permutation[-1] != len(permutation) - 1


@rule(
    "transpose",
    traits=Elementwise(0, turns=_turns, cheap_to_regather=True, shown=("permutation",), passes=moved()),
    examples=(op("transpose", "2x4x6xf32 -> 6x2x4xf32", "permutation = array<i64: 2, 0, 1>"),),
)
def transpose(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim, where the permutation puts it."""
    shape = spec.results[0].shape
    return [TileMapping((d,), (r,), shape[r]) for r, d in enumerate(spec.attributes["permutation"])]
