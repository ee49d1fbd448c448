"""Tile mappings of slice.

x[i,j] -> y[i,k] = x[:, 2:6]       i  (0) -> tile 0      k  (1) -> tile 1      from the devices that hold 2 to 5
x[i,2k] -> y[i,k] = x[:, 1::2]     k  (1) -> tile 1      one of every two, in every slice alike

Where one of the steps is taken that a batch was split into (`core/passes/scanned_rows.py`), a tile of the steps is
exchanged for one of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.stretches import MOST_STRETCHED, reads_of, stretched
from autopart.core.ops.traits import Slicing
from autopart.core.stretch import Stretch


def _localize(local: LocalOp) -> list[Value]:
    starts, strides = list(local.spec.attributes["start_indices"]), local.spec.attributes["strides"]
    for read in reads_of(local):
        starts[read.dim] = 0
    sizes = local.result_types[0].shape
    limits = [
        limit if size == whole else start + (size - 1) * stride + 1
        for start, stride, size, whole, limit in zip(
            starts, strides, sizes, local.spec.results[0].shape, local.spec.attributes["limit_indices"], strict=True
        )
    ]
    return local.clone(start_indices=starts, limit_indices=limits)


def _slice(types: str, starts: str, limits: str, strides: str) -> Example:
    return op(
        "slice",
        types,
        f"start_indices = array<i64: {starts}>, limit_indices = array<i64: {limits}>, strides = array<i64: {strides}>",
    )


@rule(
    "slice",
    traits=Slicing(cheap_to_regather=True, passes=moved()),
    localize=_localize,
    examples=(
        _slice("4x8xf32 -> 4x4xf32", "0, 2", "4, 6", "1, 1"),
        _slice("4x8xf32 -> 4x4xf32", "0, 1", "4, 8", "1, 2"),
        _slice("4x8xf32 -> 4x4xf32", "0, 0", "4, 7", "1, 2"),
        _slice("4x12xf32 -> 2x4xf32", "2, 2", "4, 12", "1, 3"),
        _slice("4x9xf32 -> 4x4xf32", "0, 0", "4, 8", "1, 2"),
        _slice("2x12xf32 -> 2x4xf32", "0, 4", "2, 8", "1, 1"),
        _slice("2x16xf32 -> 2x4xf32", "0, 3", "2, 10", "1, 2"),
    ),
)
def slice_(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims kept whole, or thinned evenly; a dim that is cut, by what its tiles read of others."""
    source, target = spec.operands[0].shape, spec.results[0].shape
    starts, strides = spec.attributes["start_indices"], spec.attributes["strides"]
    steps, rows = spec.attributes.get("rows", (WHOLE, WHOLE))
    even = [d != steps and starts[d] < strides[d] and source[d] == target[d] * strides[d] for d in range(len(source))]
    cut = [d for d in range(len(source)) if not even[d] and d != steps][:MOST_STRETCHED]
    return [
        *(
            TileMapping((d,), (d,), target[d], drawn_by=((0, steps),) if d == rows else ())
            for d in range(len(source))
            if even[d]
        ),
        *(stretched(spec, {0: (d, Stretch(target[d], -starts[d], strides[d]))}, d) for d in cut),
    ]
