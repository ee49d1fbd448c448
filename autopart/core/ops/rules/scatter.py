"""Tile mappings of scatter.

    x[v,f], indices[e], updates[e,f] -> x with rows updated

    f  (1, _, 1) -> tile 1      a window dim that is replaced whole
    v  (0, _, _) -> tile 0      each device applies the updates that fall into its slice
    e  (_, 0, 0) -> sum         each device adds its updates (a segment sum); x counts once

Batching dims tile in x, indices, updates and result together, and so does a dim of x whose index is the position along
the updates, as in `x.at[arange(e), i]`: each device counts the rows of its slice. With the reducers max and min, and
with "and" and "or" of booleans, the parts combine by that reducer, and x may count on every device. Scatter drops an
update that does not fit, so indices shifted to a slice need no mask; only a window longer than one element may lie
across slices, and then the slice is padded on both sides first. Updates that overwrite cannot be sliced along e, unless
that is a position: no reduction tells an update from what it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from autopart.core.op import MUL, REDUCTION_NAMES, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import all_batched, behind
from autopart.core.ops.passages import Passage
from autopart.core.ops.rule import Example, LocalOp, Omission, Value, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import BITWISE, combined_by_reducer, reduction_codes
from autopart.core.ops.rules.index_vectors import assembled, components, counted_again, positions
from autopart.core.ops.rules.positions import between, is_first, offset, shifted
from autopart.core.ops.traits import Update, elements

_IDENTITY = {SUM: 0, MUL: 1}


@dataclass(frozen=True)
class _Dims:
    """Which dim of a scatter is what."""

    spec: OpSpec

    @property
    def numbers(self) -> dict:
        """The op's dimension numbers."""
        return self.spec.attributes["scatter_dimension_numbers"]

    @property
    def count(self) -> int:
        """Number of arrays scattered into."""
        return len(self.spec.results)

    @cached_property
    def window(self) -> dict[int, int]:
        """Operand dim -> update dim, for window dims."""
        dropped = {*self.numbers["inserted_window_dims"], *self.numbers["input_batching_dims"]}
        kept = [d for d in range(len(self.spec.operands[0].shape)) if d not in dropped]
        return dict(zip(kept, self.numbers["update_window_dims"], strict=True))

    @cached_property
    def whole_windows(self) -> set[int]:
        """Operand dims that an update covers whole."""
        return {d for d in self.window if self.window_size(d) == self.spec.operands[0].shape[d]}

    def window_size(self, dim: int) -> int:
        """How many elements of an operand dim one update covers."""
        return self.spec.operands[-1].shape[self.window[dim]] if dim in self.window else 1

    def mapping(self, operand: int, indices: int, update: int, results: tuple[int, ...], extent: int) -> TileMapping:
        """A mapping that treats all inputs alike, and all updates alike."""
        return TileMapping((operand,) * self.count + (indices,) + (update,) * self.count, results, extent)


def _localize(local: LocalOp) -> list[Value]:
    dims = _Dims(local.spec)
    count, numbers = dims.count, dims.numbers
    inputs = [_counted_once(local, i) for i in range(count)]
    cut = [
        (m, mapping.operands[0])
        for m, mapping in enumerate(local.mappings)
        if local.ways(m) > 1
        and mapping.operands[0] != WHOLE
        and mapping.operands[count] == mapping.operands[-1] == WHOLE
    ]
    counted = counted_again(local, count)
    if not cut and not counted:
        return local.clone([*inputs, *local.operands[count:]])
    vector_dim, indexed = numbers["index_vector_dim"], numbers["scattered_dims_to_operand_dims"]
    wide = "i64" if local.operand_types[count].dtype in ("i64", "ui64") else "i32"
    parts = [local.convert(p, wide) for p in components(local, local.operands[count], vector_dim)]
    margin = [0] * len(local.operand_types[0].shape)
    for dim, along in counted.items():
        k = indexed.index(dim)
        parts[k] = local.iota(local.type_of(parts[k]), along)
    for m, dim in cut:
        k, window = indexed.index(dim), dims.window_size(dim)
        start = shifted(local, parts[k], offset(local, m, local.operand_types[0].shape[dim]))
        if window > 1:
            margin[dim] = window
            start = _dropped_unless_fits(local, parts[k], start, window, local.spec.operands[0].shape[dim])
        parts[k] = start
    indices = assembled(local, parts, vector_dim)
    if not any(margin):
        return local.clone([*inputs, indices, *local.operands[count + 1 :]])
    return _with_margin(local, inputs, indices, margin)


def _counted_once(local: LocalOp, i: int) -> Value:
    """Input i, replaced by 0 or 1 on all devices but the first where results are summed or multiplied."""
    codes = [
        (m, code)
        for m, mapping in enumerate(local.mappings)
        if local.ways(m) > 1 and (code := mapping.results[i]) in REDUCTION_NAMES and code in _IDENTITY
    ]
    if not codes or local.splat(i) == _IDENTITY[codes[0][1]]:
        return local.operands[i]
    type_ = local.operand_types[i]
    neutral = local.constant(_IDENTITY[codes[0][1]], type_.dtype, type_.shape)
    return local.select(is_first(local, [m for m, _ in codes]), local.operands[i], neutral)


def _dropped_unless_fits(local: LocalOp, index: Value, start: Value, window: int, size: int) -> Value:
    """Where a window of the padded slice starts; -1, which scatter drops, if the whole op drops the update."""
    type_ = local.type_of(start)
    fits = between(local, index, size - window + 1)
    start = local.binary("add", start, local.constant(window, type_.dtype, type_.shape))
    return local.select(fits, start, local.constant(-1, type_.dtype, type_.shape))


def _with_margin(local: LocalOp, inputs: list[Value], indices: Value, margin: list[int]) -> list[Value]:
    """Scatters into inputs padded by `margin` on both sides of each dim, and cuts the margin off again."""
    count = len(inputs)
    padded, types = [], []
    for value, type_ in zip(inputs, local.operand_types, strict=False):
        padded.append(local.pad(value, local.constant(0, type_.dtype), margin, margin))
        types.append(TensorType(tuple(n + 2 * m for n, m in zip(type_.shape, margin, strict=True)), type_.dtype))
    results = local.clone(
        [*padded, indices, *local.operands[count + 1 :]], types, indices_are_sorted=False, unique_indices=False
    )
    limits = [m + n for m, n in zip(margin, local.operand_types[0].shape, strict=True)]
    return [local.slice(value, margin, limits) for value in results]


def _one_per_row(spec: OpSpec) -> bool:
    """True if one element is added to each row, and all dims before the row's are batching dims.

    So jax writes the gradient of a loss by labels: zeros of f32[b,s,v] get one element per row of v. XLA:TPU (libtpu
    0.0.51) leaves a scatter with another reducer, rows along another dim, two elements per row, or positions in place
    of batching dims.
    """
    dims, rank = _Dims(spec), len(spec.operands[0].shape)
    if spec.region != "add" or sorted(dims.numbers["input_batching_dims"]) != [*range(rank - 1)]:
        return False
    return elements(spec.operands[-1]) * spec.operands[0].shape[-1] == elements(spec.operands[0])


def _batched(local: LocalOp) -> list[Value] | None:
    numbers = _Dims(local.spec).numbers
    moved = {name: behind(dims) for name, dims in numbers.items() if name != "index_vector_dim"}
    batching = {n: [0, *moved[n]] for n in ("input_batching_dims", "scatter_indices_batching_dims")}
    moved |= {"index_vector_dim": numbers["index_vector_dim"] + 1} | batching
    return local.clone(all_batched(local), scatter_dimension_numbers=moved, indices_are_sorted=False)


def _scatter(types: str, numbers: str, steps: tuple[str, ...], *feed: tuple[int, int] | None) -> Example:
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, indices_are_sorted = false, unique_indices = false"
    )
    return op("scatter", types, attributes, reducer(*steps), feed=feed)


def _flop(spec: OpSpec) -> float:
    """One operation per element of the updates, which are the last operands."""
    return sum(elements(t) for t in spec.operands[-len(spec.results) :])


def _passes(spec: OpSpec) -> Iterable[Passage]:
    """Updates are combined with what is there; the indices are whole."""
    return combined_by_reducer(replace(spec, region=_added(spec.region)), whole=(len(spec.results),))


def _added(region: str) -> str:
    """The reducer with subtractions as what they are to parts: sums."""
    return ",".join("add" if step == "subtract" else step for step in region.split(","))


_ROWS = "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
_CELLS = "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 0"
_ALONG = (
    "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
    "scatter_dims_to_operand_dims = [1], index_vector_dim = 2"
)
_BLOCKS = "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1"


@rule(
    "scatter",
    traits=Update(
        flop=_flop,
        one_per_row=_one_per_row,
        adds=lambda spec: spec.region == "add",
        by_index=True,
        passes=_passes,
        stops_sums="of updates that overwrite, any may come last; a product is linear, and never scales a sum",
        flop_reason="one operation per element that overwrites; XLA counts none",
    ),
    localize=_localize,
    defaults={"indices_are_sorted": False, "unique_indices": False},
    examples=(
        *(
            _scatter(f"8x6x{t}, 4x1xi32, 4x6x{t} -> 8x6x{t}", _ROWS, (f"{kind} {t}",), None, (-2, 10))
            for kind, t in (
                ("add", "f32"),
                ("subtract", "f32"),
                ("maximum", "f32"),
                ("minimum", "f32"),
                ("multiply", "f32"),
                ("overwrite", "f32"),
                ("and", "i32"),
                ("and", "i1"),
                ("or", "i1"),
            )
        ),
        _scatter("8x6xf32, 4xui8, 4x6xf32 -> 8x6xf32", _ROWS, ("add f32",), None, (0, 10)),
        _scatter("4x6xf32, 2x8xi32, 8xf32 -> 4x6xf32", _CELLS, ("add f32",), None, (-1, 7)),
        _scatter("4x6xf32, 4x2x1xi32, 4x2xf32 -> 4x6xf32", _ALONG, ("add f32",), None, (-1, 7)),
        _scatter("8x4xf32, 6x2xi64, 6x5x2xf32 -> 8x4xf32", _BLOCKS, ("add f32",), None, (-1, 5)),
        _scatter("8x4xf32, 6x2xi32, 6x3x2xf32 -> 8x4xf32", _BLOCKS, ("overwrite f32",), None, (-1, 7)),
        _scatter("8x4xf32, 6x2xi32, 6x8x1xf32 -> 8x4xf32", _BLOCKS, ("add f32",), None, (0, 3)),
        _scatter(
            "8x6xf32, 8x6xi32, 4x1xi32, 4x6xf32, 4x6xi32 -> 8x6xf32, 8x6xi32",
            _ROWS,
            ("add f32", "maximum i32"),
            None,
            None,
            (-2, 10),
        ),
    ),
    omissions=(
        Omission(
            "where updates replace a dim whole, they are sliced with it",
            lambda spec, mapping: mapping.operands[-1] == WHOLE and mapping.operands[0] in _Dims(spec).whole_windows,
        ),
        BITWISE,
    ),
    batched=_batched,
)
def scatter(spec: OpSpec) -> Iterable[TileMapping]:
    """Update batch dims, batching dims, window dims replaced whole, and indexed dims of the operand."""
    dims = _Dims(spec)
    n, count = dims.numbers, dims.count
    operand, indices, updates = (spec.operands[i].shape for i in (0, count, count + 1))
    codes = reduction_codes(_added(spec.region), spec.results)
    batching = dict(zip(n["scatter_indices_batching_dims"], n["input_batching_dims"], strict=True)) | positions(spec)
    batch = [d for d in range(len(indices)) if d != n["index_vector_dim"]]
    scattered = [d for d in range(len(updates)) if d not in n["update_window_dims"]]
    for index_dim, update_dim in zip(batch, scattered, strict=True):
        size = updates[update_dim]
        if index_dim in batching:
            dim = batching[index_dim]
            yield dims.mapping(dim, index_dim, update_dim, (dim,) * count, size)
        elif codes is not None:
            yield dims.mapping(WHOLE, index_dim, update_dim, codes, size)
    for dim, size in enumerate(operand):
        if dim in dims.whole_windows:
            yield dims.mapping(dim, WHOLE, dims.window[dim], (dim,) * count, size)
        elif dim in n["scattered_dims_to_operand_dims"] and dims.window_size(dim) and dim not in batching.values():
            yield dims.mapping(dim, WHOLE, WHOLE, (dim,) * count, size)
