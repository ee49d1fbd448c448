"""Tile mappings of slice.

x[i,j] -> y[i,k] = x[:, 2:6]       i  (0) -> tile 0      k  (1) -> tile 1      from the devices that hold 2 to 5
x[i,2k] -> y[i,k] = x[:, 1::2]     k  (1) -> tile 1      one of every two, in every slice alike
x[i,j] -> y[i,1] = x[:, :1]        j  (1) -> sum         the device that holds it yields it, the others zeros

Of a small part of a dim that cannot be tiled, the sum over devices moves far less than the dim.

Where one of the steps is taken that a batch was split into (`core/passes/scanned_rows.py`), a tile of the steps is
exchanged for one of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import REDUCTION_NAMES, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import batch_size, with_batch
from autopart.core.ops.passages import moved
from autopart.core.ops.rule import Example, LocalOp, Omission, Value, rule
from autopart.core.ops.rules.dynamic_slice import window_in_parts
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import one_hot_sum
from autopart.core.ops.rules.stretches import MOST_STRETCHED, reads_of, stretched
from autopart.core.ops.traits import Slicing
from autopart.core.stretch import Stretch

SMALL_PART = 64
"""Of a dim at least this many times as long as the slice, tiles of the slice are not looked for."""

FEW_TILES = 8
"""Nor are they of a quarter of a dim, or less, that makes fewer tiles."""


def _localize(local: LocalOp) -> list[Value]:
    starts = list(local.spec.attributes["start_indices"])
    parts = [
        (m, mapping.operands[0])
        for m, mapping in enumerate(local.mappings)
        if local.ways(m) > 1 and mapping.results[0] in REDUCTION_NAMES
    ]
    if parts:
        return [_in_parts(local, parts, starts)]
    for read in reads_of(local):
        starts[read.dim] = 0
    return local.clone(start_indices=starts, limit_indices=_limits(local, starts))


def _in_parts(local: LocalOp, parts: list[tuple[int, int]], starts: list[int]) -> Value:
    """Dims of which a small part is taken are cut last, by each device as far as it holds the part."""
    dims, places = {dim for _, dim in parts}, [local.constant(0, "i32")] * len(starts)
    for dim in dims:
        places[dim] = local.constant(starts[dim], "i32")
    whole = local.operand_types[0].shape
    for read in reads_of(local):
        starts[read.dim] = 0
    limits = [whole[d] if d in dims else limit for d, limit in enumerate(_limits(local, starts))]
    starts = [0 if d in dims else start for d, start in enumerate(starts)]
    sizes, type_ = local.result_types[0].shape, local.result_types[0]
    kept = TensorType(tuple(whole[d] if d in dims else n for d, n in enumerate(sizes)), type_.dtype)
    strides = [1 if d in dims else stride for d, stride in enumerate(local.spec.attributes["strides"])]
    [value] = local.clone(None, [kept], start_indices=starts, limit_indices=limits, strides=strides)
    return window_in_parts(local, value, parts, places, sizes)


def _limits(local: LocalOp, starts: list[int]) -> list[int]:
    strides, sizes = local.spec.attributes["strides"], local.result_types[0].shape
    return [
        limit if size == whole else start + (size - 1) * stride + 1
        for start, stride, size, whole, limit in zip(
            starts, strides, sizes, local.spec.results[0].shape, local.spec.attributes["limit_indices"], strict=True
        )
    ]


_LARGE_PART = Omission(
    "of a large part of a dim, tiles are exchanged: a sum over devices would move all of it to all of them",
    lambda spec, mapping: any(code in REDUCTION_NAMES for code in mapping.results),
)


def _slice(types: str, starts: str, limits: str, strides: str) -> Example:
    return op(
        "slice",
        types,
        f"start_indices = array<i64: {starts}>, limit_indices = array<i64: {limits}>, strides = array<i64: {strides}>",
    )


def _batched(local: LocalOp) -> list[Value] | None:
    attributes = local.spec.attributes
    return local.clone(
        [with_batch(local, 0)],
        start_indices=[0, *attributes["start_indices"]],
        limit_indices=[batch_size(local), *attributes["limit_indices"]],
        strides=[1, *attributes["strides"]],
    )


@rule(
    "slice",
    traits=Slicing(
        strided=lambda spec: max(spec.attributes["strides"], default=1) > 1, cheap_to_regather=True, passes=moved()
    ),
    localize=_localize,
    examples=(
        _slice("4x8x4xf32 -> 4x4x1xf32", "0, 2, 3", "4, 6, 4", "1, 1, 1"),
        _slice("4x8xf32 -> 4x4xf32", "0, 2", "4, 6", "1, 1"),
        _slice("4x8xf32 -> 4x4xf32", "0, 1", "4, 8", "1, 2"),
        _slice("4x8xf32 -> 4x4xf32", "0, 0", "4, 7", "1, 2"),
        _slice("4x12xf32 -> 2x4xf32", "2, 2", "4, 12", "1, 3"),
        _slice("4x9xf32 -> 4x4xf32", "0, 0", "4, 8", "1, 2"),
        _slice("2x12xf32 -> 2x4xf32", "0, 4", "2, 8", "1, 1"),
        _slice("2x16xf32 -> 2x4xf32", "0, 3", "2, 10", "1, 2"),
        _slice("4x8xf32 -> 4x1xf32", "0, 3", "4, 4", "1, 1"),
        _slice("16x8xf32 -> 3x1xf32", "2, 7", "5, 8", "1, 1"),
        _slice("4x8xi1 -> 1x4xi1", "3, 2", "4, 6", "1, 1"),
    ),
    omissions=(_LARGE_PART,),
    batched=_batched,
)
def slice_(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims kept whole, or thinned evenly; a dim that is cut, by what its tiles read of others."""
    source, target = spec.operands[0].shape, spec.results[0].shape
    starts, strides = spec.attributes["start_indices"], spec.attributes["strides"]
    steps, rows = spec.attributes.get("rows", (WHOLE, WHOLE))
    even = [d != steps and starts[d] < strides[d] and source[d] == target[d] * strides[d] for d in range(len(source))]
    cut = [d for d in range(len(source)) if not even[d] and d != steps]
    reads = {d: Stretch(target[d], -starts[d], strides[d]) for d in cut}
    small = [d for d in cut if _is_small_part(source[d], target[d], strides[d], reads[d])]
    cut = [d for d in cut if d not in small][:MOST_STRETCHED]
    return [
        *(
            TileMapping((d,), (d,), target[d], drawn_by=((0, steps),) if d == rows else ())
            for d in range(len(source))
            if even[d]
        ),
        *(TileMapping((d,), (one_hot_sum(spec.results[0]),), source[d]) for d in small),
        *(stretched(spec, {0: (d, reads[d])}, d) for d in cut),
    ]


def _is_small_part(size: int, part: int, stride: int, read: Stretch) -> bool:
    if not part or (stride > 1 and part > 1):
        return False
    return SMALL_PART * part <= size or (4 * part <= size and read.extent(size) < FEW_TILES)
