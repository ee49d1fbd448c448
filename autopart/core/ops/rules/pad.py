"""Tile mappings of pad.

x[i,j] -> y[i,j+2]    padded by one before and after j    i  (0, _) -> tile 0    j  (1, _) -> tile 1: elements move on
x[i,j] -> y[i,2j]     one pad after every element         j  (1, _) -> tile 1    every slice is padded alike
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import is_batched, with_batch
from autopart.core.ops.passages import Passage, moved
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.stretches import MOST_STRETCHED, filled, is_zero, reads_of, stretched
from autopart.core.ops.traits import Elementwise
from autopart.core.stretch import Stretch


def _pad(types: str, low: str, high: str, interior: str) -> Example:
    return op(
        "pad",
        types,
        f"edge_padding_low = array<i64: {low}>, edge_padding_high = array<i64: {high}>, "
        f"interior_padding = array<i64: {interior}>",
    )


def _localize(local: LocalOp) -> list[Value]:
    """What is outside the operand is padding; a stretch has as much of it as its tile has."""
    attributes, value = local.spec.attributes, local.operands[0]
    low, high = list(attributes["edge_padding_low"]), list(attributes["edge_padding_high"])
    for read in reads_of(local):
        if not is_zero(local.splat(1)):
            value = filled(local, value, read, local.operands[1])
        low[read.dim], high[read.dim] = read.stretch.ahead(read.ways), read.stretch.behind(read.ways)
    return local.clone([value, local.operands[1]], edge_padding_low=low, edge_padding_high=high)


def _passages(spec: OpSpec) -> Iterable[Passage]:
    """Its elements only change places; a pad that is left out everywhere may be whole beside what is in parts."""
    sides = ("edge_padding_low", "edge_padding_high", "interior_padding")
    adds = any(most > 0 for side in sides for most in spec.attributes[side])
    return [*moved()(spec), *([] if adds else moved(1)(spec))]


def _batched(local: LocalOp) -> list[Value] | None:
    if is_batched(local, 1):
        return None
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    paddings: dict[str, Any] = {name: [0, *local.spec.attributes[name]] for name in names}
    return local.clone([with_batch(local, 0), local.operands[1]], **paddings)


@rule(
    "pad",
    traits=Elementwise(0, joins=True, passes=_passages),
    localize=_localize,
    examples=(
        _pad("4x6xf32, f32 -> 4x8xf32", "0, 1", "0, 1", "0, 0"),
        _pad("4x6xf32, f32 -> 4x12xf32", "0, 0", "0, 1", "0, 1"),
        _pad("4x6xf32, f32 -> 4x18xf32", "0, 1", "0, 1", "0, 2"),
        _pad("4x6xf32, f32 -> 4x11xf32", "0, 0", "0, 0", "0, 1"),
        _pad("4x6xf32, f32 -> 4x6xf32", "0, -1", "0, 1", "0, 0"),
        _pad("2x4xf32, f32 -> 2x8xf32", "0, 2", "0, 2", "0, 0"),
        _pad("2x4xf32, f32 -> 2x12xf32", "0, 4", "0, 1", "0, 1"),
        _pad("2x8xf32, f32 -> 2x4xf32", "0, -2", "0, -2", "0, 0"),
    ),
    batched=_batched,
)
def pad(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims without padding, or with the same padding around every element; others by what moves from tile to tile."""
    attributes, shape = spec.attributes, spec.operands[0].shape
    columns = zip(
        shape,
        attributes["edge_padding_low"],
        attributes["edge_padding_high"],
        attributes["interior_padding"],
        strict=True,
    )
    moves: list[TileMapping] = []
    for d, (size, low, high, interior) in enumerate(columns):
        if low >= 0 and high >= 0 and low + high == interior:
            yield TileMapping((d, WHOLE), (d,), size)
        elif len(moves) < MOST_STRETCHED:
            rows = spec.results[0].shape[d]
            moves.append(stretched(spec, {0: (d, Stretch(rows, low, dilation=interior + 1))}, d))
    yield from moves
