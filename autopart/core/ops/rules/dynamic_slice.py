"""Tile mappings of dynamic_slice.

    x[i,j], start -> y[i,k]        i kept whole, k elements of j from `start`

    i  (0, _, _) -> tile 0
    j  (1, _, _) -> sum            the device whose slice holds an element yields it, the others yield zero

One element (a scan reading its layer) is read where it is and masked. A longer window may lie across two slices: each
device reads the nearest part of its own slice, and shifts it to where it stands in the window:

    slices |abcd|efgh|, window of 3 from 2    ->    cd0  and  00e

Where j are the steps of a loop that a batch was split into, and i their rows (`core/passes/scanned_rows.py`), j is not
sliced: a tile of j is exchanged for one of i.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import batch_size, is_batched, with_batch
from autopart.core.ops.passages import moved_by_index
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import one_hot_sum
from autopart.core.ops.rules.positions import between, clamped_index, offset, shifted
from autopart.core.ops.traits import Slicing


def cut_dims(local: LocalOp, sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(mapping, dim) of the sliced dims of operand 0 of which only a window of `sizes` is touched."""
    whole = local.spec.operands[0].shape
    for m, mapping in enumerate(local.mappings):
        dim = mapping.operands[0]
        if local.ways(m) > 1 and dim != WHOLE and sizes[dim] != whole[dim]:
            yield m, dim


def clamped_starts(local: LocalOp, starts: list[Value], sizes: tuple[int, ...]) -> list[Value]:
    """Start indices of the whole op as i32, clamped to where its window of `sizes` fits; 0 for dims taken whole."""
    whole = local.spec.operands[0].shape
    return [
        local.constant(0, "i32") if size == n else clamped_index(local, start, n - size)
        for start, size, n in zip(starts, sizes, whole, strict=True)
    ]


def _localize(local: LocalOp) -> list[Value]:
    whole_sizes = local.spec.results[0].shape
    cut = list(cut_dims(local, whole_sizes))
    if not cut:
        return local.clone(slice_sizes=local.result_types[0].shape)
    starts = clamped_starts(local, list(local.operands[1:]), whole_sizes)
    return [window_in_parts(local, local.operands[0], cut, starts, local.result_types[0].shape)]


def window_in_parts(
    local: LocalOp, value: Value, cut: list[tuple[int, int]], starts: list[Value], sizes: tuple[int, ...]
) -> Value:
    """What a device holds of a window of `sizes` that begins at `starts`, in its place, and zeros in all others.

    cut     (mapping, dim) of the dims of `value` that are sliced and of which the window is a part
    starts  i32 scalars, where the window begins in the whole dim
    """
    held_sizes, starts = list(sizes), list(starts)
    shifts: list[tuple[int, Value]] = []
    held: list[Value] = []
    for m, dim in cut:
        length, window = local.type_of(value).shape[dim], sizes[dim]
        starts[dim] = shifted(local, starts[dim], offset(local, m, length))
        if window == 1:
            held.append(between(local, starts[dim], length))
            continue
        held_sizes[dim] = min(window, length)
        nearest = _clamp(local, starts[dim], length - held_sizes[dim])
        shifts.append((dim, local.binary("subtract", starts[dim], nearest)))
        starts[dim] = nearest
    value = local.dynamic_slice(value, starts, held_sizes)
    for dim, shift in shifts:
        value = moved(local, value, dim, shift, sizes[dim])
    for mask in held:
        type_ = local.type_of(value)
        value = local.select(mask, value, local.constant(0, type_.dtype, type_.shape))
    return value


def _clamp(local: LocalOp, index: Value, highest: int) -> Value:
    index = local.binary("maximum", index, local.constant(0, "i32"))
    return local.binary("minimum", index, local.constant(highest, "i32"))


def moved(local: LocalOp, value: Value, dim: int, shift: Value, size: int) -> Value:
    """`size` elements of `value` along `dim` from element `shift` on; zeros before its first and after its last."""
    type_ = local.type_of(value)
    edges = [size if d == dim else 0 for d in range(len(type_.shape))]
    padded = local.pad(value, local.constant(0, type_.dtype), edges, edges)
    starts = [local.constant(0, "i32")] * len(type_.shape)
    starts[dim] = local.binary("add", shift, local.constant(size, "i32"))
    return local.dynamic_slice(padded, starts, [size if d == dim else n for d, n in enumerate(type_.shape)])


def _slice(types: str, sizes: str, *feed: tuple[int, int]) -> Example:
    return op("dynamic_slice", types, f"slice_sizes = array<i64: {sizes}>", feed=(None, *feed))


def _batched(local: LocalOp) -> list[Value] | None:
    """The same window everywhere is a window; windows that begin at different places are gathered."""
    count, sizes = batch_size(local), local.spec.results[0].shape
    starts, dtype = range(1, len(local.operands)), local.operand_types[-1].dtype
    if not any(is_batched(local, k) for k in starts):
        first = local.constant(0, dtype)
        return [local.dynamic_slice(with_batch(local, 0), [first, *local.operands[1:]], (count, *sizes))]
    columns = [local.reshape(with_batch(local, k), (count, 1)) for k in starts]
    return [local.windows(with_batch(local, 0), local.concatenate(columns, 1), sizes)]


@rule(
    "dynamic_slice",
    traits=Slicing(cheap_to_regather=True, by_index=True, passes=moved_by_index()),
    localize=_localize,
    examples=(
        _slice("6x4xf32, i32, i32 -> 1x4xf32", "1, 4", (-2, 8), (-2, 8)),
        _slice("6x4xf32, i32, i32 -> 6x1xf32", "6, 1", (0, 8), (3, 4)),
        _slice("8x4xf32, i32, i32 -> 3x2xf32", "3, 2", (2, 4), (1, 2)),
        _slice("8x4xi1, i32, i32 -> 5x4xi1", "5, 4", (1, 3), (0, 1)),
        _slice("8xi32, i64 -> 7xi32", "7", (1, 2)),
        _slice("8xi32, ui8 -> 1xi32", "1", (5, 6)),
    ),
    batched=_batched,
)
def dynamic_slice(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims taken whole tile; of the others, the slices that hold a part of the window are summed."""
    source, target = spec.operands[0].shape, spec.results[0].shape
    starts = (WHOLE,) * (len(spec.operands) - 1)
    steps, rows = spec.attributes.get("rows", (WHOLE, WHOLE))
    for d, (size, window) in enumerate(zip(source, target, strict=True)):
        if window and d != steps:
            drawn = ((0, steps),) if d == rows and size == window else ()
            entry = d if size == window else one_hot_sum(spec.results[0])
            yield TileMapping((d, *starts), (entry,), size, drawn_by=drawn)
