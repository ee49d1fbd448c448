"""Tile mappings of gather.

    table[v,f], indices[b,s] -> rows[b,s,f]

    f  (1, _) -> tile 2      a window dim that is taken whole
    b  (_, 0) -> tile 0      each device looks up its indices
    v  (0, _) -> sum         vocabulary-sharded: each device yields the rows that it holds, and zeros for the others

Batching dims tile in table, indices and result together, and so does a dim of the table whose index is the position
along the batch, as in `logp[arange(b), labels]`: each device counts the rows of its slice. Where another indexed dim
is sliced, indices are clamped as the whole op would, shifted to the slice, and what falls outside is masked; a window
longer than one element may lie across slices, so the slice is padded with zeros on both sides first.

Where rows are taken in an order that is known, each device is sent those of its tile.
"""

from __future__ import annotations

from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import behind, is_batched, with_batch
from autopart.core.ops.passages import moved_by_index
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import one_hot_sum
from autopart.core.ops.rules.index_vectors import assembled, components, counted_again, positions
from autopart.core.ops.rules.positions import between, clamped_index, offset, shifted
from autopart.core.ops.rules.stretches import reads_of, stretched
from autopart.core.ops.traits import Slicing
from autopart.core.stretch import Stretch

ORDER = "order"
"""What the rows are that a gather takes along its one indexed dim, by `known_indices`."""


def _localize(local: LocalOp) -> list[Value]:
    if any(reads_of(local)):
        return [local.operands[0]]
    numbers, windows = local.spec.attributes["dimension_numbers"], local.spec.attributes["slice_sizes"]
    whole, held = local.spec.operands[0].shape, local.operand_types[0].shape
    sizes = [n if window == full else window for window, full, n in zip(windows, whole, held, strict=True)]
    cut = [
        (m, mapping.operands[0])
        for m, mapping in enumerate(local.mappings)
        if local.ways(m) > 1
        and mapping.operands[1] == WHOLE
        and windows[mapping.operands[0]] != whole[mapping.operands[0]]
    ]
    counted = counted_again(local, 1)
    if not cut and not counted:
        return local.clone(slice_sizes=sizes)
    table, vector_dim, indexed = local.operands[0], numbers["index_vector_dim"], numbers["start_index_map"]
    parts = components(local, local.operands[1], vector_dim)
    parts = [clamped_index(local, p, whole[d] - windows[d]) for p, d in zip(parts, indexed, strict=True)]
    masks = []
    for dim, along in counted.items():
        k = indexed.index(dim)
        parts[k] = local.iota(local.type_of(parts[k]), along)
    for m, dim in cut:
        k, size = indexed.index(dim), held[dim]
        parts[k] = shifted(local, parts[k], offset(local, m, size))
        if windows[dim] == 1:
            masks.append(between(local, parts[k], size))
            continue
        edges = [windows[dim] if d == dim else 0 for d in range(len(held))]
        table = local.pad(table, local.constant(0, local.operand_types[0].dtype), edges, edges)
        pad = local.constant(windows[dim], "i32", local.type_of(parts[k]).shape)
        parts[k] = local.binary("add", parts[k], pad)
    (rows,) = local.clone([table, assembled(local, parts, vector_dim)], slice_sizes=sizes, indices_are_sorted=False)
    return [_masked(local, rows, masks, numbers["offset_dims"])]


def _masked(local: LocalOp, rows: Value, masks: list[Value], offset_dims: tuple[int, ...]) -> Value:
    """The gathered rows, zero where an index of the batch missed this device's slice."""
    type_ = local.result_types[0]
    batch = [d for d in range(len(type_.shape)) if d not in offset_dims]
    for mask in masks:
        zero = local.constant(0, type_.dtype, type_.shape)
        rows = local.select(local.broadcast(mask, type_.shape, batch), rows, zero)
    return rows


def _batched(local: LocalOp) -> list[Value] | None:
    """A batching dim of table and indices; of the indices alone where all read one table."""
    attributes = local.spec.attributes
    numbers, sizes, one_table = attributes["dimension_numbers"], attributes["slice_sizes"], not is_batched(local, 0)
    vector = {"index_vector_dim": numbers["index_vector_dim"] + 1}
    if one_table:
        indexed = numbers["start_indices_batching_dims"]
        numbers = numbers | vector | {"offset_dims": behind(numbers["offset_dims"])}
        numbers["start_indices_batching_dims"] = behind(indexed)
    else:
        moved = {name: behind(dims) for name, dims in numbers.items() if name != "index_vector_dim"} | vector
        batching = {n: [0, *moved[n]] for n in ("operand_batching_dims", "start_indices_batching_dims")}
        numbers, sizes = moved | batching, (1, *sizes)
    operands = [local.operands[0], with_batch(local, 1)]
    return local.clone(operands, dimension_numbers=numbers, slice_sizes=sizes, indices_are_sorted=False)


def _gather(types: str, numbers: str, sizes: str, *feed: tuple[int, int]) -> Example:
    sizes = f"slice_sizes = array<i64: {sizes}>, indices_are_sorted = false"
    return op("gather", types, f"dimension_numbers = #stablehlo.gather<{numbers}>, {sizes}", feed=(None, *feed))


_ROWS = "offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2"
_CELLS = "collapsed_slice_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = 0"
_ALONG = (
    "collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], "
    "start_index_map = [1], index_vector_dim = 2"
)


@rule(
    "gather",
    traits=Slicing(
        indexed=True, one_per_row=lambda spec: _reads_one_per_row(spec), by_index=True, passes=moved_by_index()
    ),
    localize=_localize,
    defaults={"indices_are_sorted": False},
    examples=(
        _gather("8x6xf32, 2x4x1xi32 -> 2x4x6xf32", _ROWS, "1, 6", (-3, 12)),
        _gather("8x6xf32, 2x4xi32 -> 2x4x6xf32", _ROWS, "1, 6", (-3, 12)),
        _gather(
            "8x6xi1, 4x1xui8 -> 4x6xi1",
            "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1",
            "1, 6",
            (0, 12),
        ),
        _gather("4x6xf32, 2x8xi32 -> 8xf32", _CELLS, "1, 1", (-1, 7)),
        _gather("4x6xf32, 4x2x1xi32 -> 4x2xf32", _ALONG, "1, 1", (-1, 7)),
        _gather(
            "8x6xf32, 4x1xi64 -> 4x3x6xf32",
            "offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1",
            "3, 6",
            (-1, 9),
        ),
        _gather(
            "8x4xf32, 6x2xi32 -> 6x5x2xf32",
            "offset_dims = [1, 2], start_index_map = [0, 1], index_vector_dim = 1",
            "5, 2",
            (-1, 9),
        ),
        _gather(
            "4x6xf32, 1xi32 -> 4xf32",
            "offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 0",
            "4, 1",
            (3, 4),
        ),
        _gather(
            "4x6xf32, 8x1xi32 -> 8x4x6xf32",
            "offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1",
            "4, 6",
            (-1, 3),
        ),
    ),
    batched=_batched,
)
def gather(spec: OpSpec) -> Iterable[TileMapping]:
    """Index batch dims, batching dims, window dims taken whole, and indexed dims of the operand as sums."""
    if ORDER in spec.attributes:
        yield from _in_order(spec, spec.attributes[ORDER])
        return
    n, windows = spec.attributes["dimension_numbers"], spec.attributes["slice_sizes"]
    operand, indices, result = spec.operands[0].shape, spec.operands[1].shape, spec.results[0].shape
    batching = dict(zip(n["start_indices_batching_dims"], n["operand_batching_dims"], strict=True)) | positions(spec)
    batch = [d for d in range(len(indices)) if d != n["index_vector_dim"]]
    places = [r for r in range(len(result)) if r not in n["offset_dims"]]
    for d, r in zip(batch, places, strict=True):
        yield TileMapping((batching.get(d, WHOLE), d), (r,), result[r])
    dropped = {*n["collapsed_slice_dims"], *n["operand_batching_dims"]}
    window_dims = [d for d in range(len(operand)) if d not in dropped]
    for d, r in zip(window_dims, n["offset_dims"], strict=True):
        if windows[d] == operand[d]:
            yield TileMapping((d, WHOLE), (r,), operand[d])
    for d in n["start_index_map"]:
        if 0 < windows[d] < operand[d] and d not in batching.values():
            yield TileMapping((d, WHOLE), (one_hot_sum(spec.results[0]),), operand[d])


def _reads_one_per_row(spec: OpSpec) -> bool:
    """True for one index in each row of a batch, as `jax.vmap` writes slices."""
    n, indices = spec.attributes["dimension_numbers"], spec.operands[1].shape
    rows = n["start_indices_batching_dims"]
    counted = [d for d in range(len(indices)) if d not in (n["index_vector_dim"], *rows)]
    return len(rows) > 0 and all(indices[d] == 1 for d in counted)


def _in_order(spec: OpSpec, order: tuple[int, ...]) -> Iterable[TileMapping]:
    """The dims of which all is taken, and the one along which rows are taken in an order."""
    [dim] = spec.attributes["dimension_numbers"]["start_index_map"]
    shape = spec.operands[0].shape
    yield from (TileMapping((d, WHOLE), (d,), n) for d, n in enumerate(shape) if d != dim)
    yield stretched(spec, {0: (dim, Stretch(len(order), order=order))}, dim)
