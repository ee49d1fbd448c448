"""Tile mappings of dynamic_update_slice.

    x[i,j], u[i,k], start -> y[i,j]    i replaced whole, k elements of j from `start`

    i  (0, 0, _, _) -> tile 0
    j  (1, _, _, _) -> tile 1          each device replaces what falls into its slice

A device reads the window of its slice that is nearest to the update, mixes the update in where it applies and writes
the window back: what is not touched is neither read nor copied (a KV cache is updated in place).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import batch_size, is_batched, with_batch
from autopart.core.ops.passages import moved_by_index
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.dynamic_slice import clamped_starts, cut_dims, moved
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.positions import between, offset, shifted
from autopart.core.ops.traits import Update, elements


def _localize(local: LocalOp) -> list[Value]:
    operand, update = local.operands[:2]
    window = local.spec.operands[1].shape
    cut = list(cut_dims(local, window))
    if not cut:
        return local.clone()
    starts = clamped_starts(local, list(local.operands[2:]), window)
    sizes = list(local.operand_types[1].shape)
    taken: list[tuple[int, Value]] = []
    for m, dim in cut:
        length = local.operand_types[0].shape[dim]
        sizes[dim] = min(window[dim], length)
        start = shifted(local, starts[dim], offset(local, m, length))
        starts[dim] = local.binary("maximum", start, local.constant(0, "i32"))
        starts[dim] = local.binary("minimum", starts[dim], local.constant(length - sizes[dim], "i32"))
        taken.append((dim, local.binary("subtract", starts[dim], start)))
    for dim, first in taken:
        if window[dim] > 1:
            update = moved(local, update, dim, first, sizes[dim])
    current = local.dynamic_slice(operand, starts, sizes)
    touched = _touched(local, taken, window, sizes)
    return [local.dynamic_update_slice(operand, local.select(touched, update, current), starts)]


def _touched(local: LocalOp, taken: list[tuple[int, Value]], window: tuple[int, ...], sizes: list[int]) -> Value:
    """i1, scalar or of the window's shape: where the update applies."""
    masks = []
    for dim, first in taken:
        element = first
        if window[dim] > 1:
            row = local.iota(TensorType((sizes[dim],), "i32"), 0)
            element = local.binary("add", row, local.broadcast(first, (sizes[dim],)))
        masks.append((dim, between(local, element, window[dim])))
    if all(window[dim] == 1 for dim, _ in masks):
        return functools.reduce(lambda a, b: local.binary("and", a, b), [mask for _, mask in masks])
    wide = [local.broadcast(mask, sizes, [dim] if window[dim] > 1 else []) for dim, mask in masks]
    return functools.reduce(lambda a, b: local.binary("and", a, b), wide)


def _update(types: str, *feed: tuple[int, int]) -> Example:
    return op("dynamic_update_slice", types, feed=(None, None, *feed))


def _batched(local: LocalOp) -> list[Value]:
    """A window that begins at one place everywhere is a window; those that do not are scattered."""
    starts = range(2, len(local.operands))
    if any(is_batched(local, k) for k in starts):
        (whole, window), count = (t.shape for t in local.spec.operands[:2]), batch_size(local)
        columns, dtype = [local.reshape(with_batch(local, k), (count, 1)) for k in starts], local.operand_types[2].dtype
        for d, column in enumerate(columns):
            first, last = (local.constant(at, dtype, (count, 1)) for at in (0, whole[d] - window[d]))
            columns[d] = local.binary("minimum", local.binary("maximum", column, first), last)
        return [local.replaced_windows(with_batch(local, 0), with_batch(local, 1), local.concatenate(columns, 1))]
    first = [local.constant(0, t.dtype) for t in local.operand_types[2:3]]
    return [local.dynamic_update_slice(with_batch(local, 0), with_batch(local, 1), [*first, *local.operands[2:]])]


@rule(
    "dynamic_update_slice",
    traits=Update(
        by_index=True,
        passes=moved_by_index(2),
        flop=lambda spec: elements(spec.operands[1]),
        flop_reason="one operation per element moved; XLA counts none",
    ),
    localize=_localize,
    examples=(
        _update("6x4xf32, 1x4xf32, i32, i32 -> 6x4xf32", (-2, 8), (-2, 8)),
        _update("6x4xf32, 6x1xf32, i32, i32 -> 6x4xf32", (0, 8), (3, 4)),
        _update("8x4xf32, 3x2xf32, i32, i32 -> 8x4xf32", (2, 4), (1, 2)),
        _update("8x4xi1, 5x4xi1, i32, i32 -> 8x4xi1", (1, 3), (0, 1)),
        _update("8x4xi32, 1x3xi32, i32, i32 -> 8x4xi32", (5, 6), (1, 2)),
        _update("8xi32, 7xi32, i64 -> 8xi32", (1, 2)),
        _update("8xi32, 1xi32, ui8 -> 8xi32", (5, 6)),
    ),
    batched=_batched,
)
def dynamic_update_slice(spec: OpSpec) -> Iterable[TileMapping]:
    """Every dim; the update is sliced along where it replaces the whole dim."""
    operand, update = spec.operands[0].shape, spec.operands[1].shape
    starts = (WHOLE,) * (len(spec.operands) - 2)
    for d, size in enumerate(operand):
        yield TileMapping((d, d if update[d] == size else WHOLE, *starts), (d,), size)
