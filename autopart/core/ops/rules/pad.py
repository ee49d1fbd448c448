"""Tile mappings of pad.

x[i,j] -> y[i,j+2]    padded by one before and after j    i  (0, _) -> tile 0    j is blocked: only the ends change
x[i,j] -> y[i,2j]     one pad after every element         j  (1, _) -> tile 1    every slice is padded alike
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import Example, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Elementwise


def _pad(types: str, low: str, high: str, interior: str) -> Example:
    return op(
        "pad",
        types,
        f"edge_padding_low = array<i64: {low}>, edge_padding_high = array<i64: {high}>, "
        f"interior_padding = array<i64: {interior}>",
    )


@rule(
    "pad",
    traits=Elementwise(0, passes=moved()),
    examples=(
        _pad("4x6xf32, f32 -> 4x8xf32", "0, 1", "0, 1", "0, 0"),
        _pad("4x6xf32, f32 -> 4x12xf32", "0, 0", "0, 1", "0, 1"),
        _pad("4x6xf32, f32 -> 4x18xf32", "0, 1", "0, 1", "0, 2"),
        _pad("4x6xf32, f32 -> 4x11xf32", "0, 0", "0, 0", "0, 1"),
        _pad("4x6xf32, f32 -> 4x6xf32", "0, -1", "0, 1", "0, 0"),
    ),
)
def pad(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims without padding, or with the same padding around every element."""
    attributes, shape = spec.attributes, spec.operands[0].shape
    columns = zip(
        shape,
        attributes["edge_padding_low"],
        attributes["edge_padding_high"],
        attributes["interior_padding"],
        strict=True,
    )
    for d, (size, low, high, interior) in enumerate(columns):
        if low >= 0 and high >= 0 and low + high == interior:
            yield TileMapping((d, WHOLE), (d,), size)
