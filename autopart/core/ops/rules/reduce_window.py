"""Tile mappings of reduce_window: pooling, and what cumulative sums lower to.

    x[i,j], init -> y[i,k]     windows of 2 along j, stride 2

    i  (0, _) -> tile 0        no window
    k  (1, _) -> tile 1        windows that do not overlap stay inside a slice; others read a halo of its neighbours'

What is outside the dim is the reducer's identity in a halo: XLA leaves padding out, whatever the initial value is. So a
dim that is padded is blocked for a reducer that is no plain sum, product, maximum or minimum, and no "and" or "or".

Windows over more than half the dim (cumsum is one as long as the dim) would need most of it: blocked. A window that
covers a dim exactly is a reduction over it; but where other dims are padded, the padding is the initial value too, and
counts in every part of a sum or product: blocked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from autopart.core.op import MAX, MIN, MUL, REDUCTION_NAMES, SUM, WHOLE, OpSpec, TileMapping
from autopart.core.ops.batching import is_batched, with_batch
from autopart.core.ops.rule import LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import BITWISE, combined_by_reducer, reduction_codes
from autopart.core.ops.rules.reduce import identity, reduced_in_parts
from autopart.core.ops.rules.stretches import MOST_STRETCHED, filled, reads_of, stretched
from autopart.core.ops.rules.windows import Window
from autopart.core.ops.traits import Reduction, elements


def windows(spec: OpSpec, out: tuple[int, ...]) -> list[Window]:
    """The windows over operand 0, per dim, with outputs of shape `out`; attributes left out have their defaults."""
    shape, attributes = spec.operands[0].shape, spec.attributes
    ones = (1,) * len(shape)
    padding = attributes.get("padding") or ((0, 0),) * len(shape)
    columns = zip(
        shape,
        attributes.get("window_dimensions") or ones,
        out,
        attributes.get("window_strides") or ones,
        [low for low, _ in padding],
        [high for _, high in padding],
        attributes.get("base_dilations") or ones,
        attributes.get("window_dilations") or ones,
        strict=True,
    )
    return [Window(*column) for column in columns]


def _localize(local: LocalOp) -> list[Value]:
    sizes = list(local.spec.attributes["window_dimensions"])
    for m, mapping in enumerate(local.mappings):
        if mapping.results[0] in REDUCTION_NAMES:
            sizes[mapping.operands[0]] //= local.ways(m)
    reads = list(reads_of(local))
    if not reads:
        return reduced_in_parts(local, window_dimensions=sizes)
    inputs, codes = list(local.operands[: len(local.result_types)]), _codes(local.spec)
    padding = list(local.spec.attributes.get("padding") or ((0, 0),) * len(sizes))
    for read in reads:
        padding[read.dim] = read.stretch.ahead(read.ways), read.stretch.behind(read.ways)
        if codes is not None:
            type_ = local.operand_types[read.operand]
            inputs[read.operand] = filled(local, inputs[read.operand], read, identity(codes[read.operand], type_.dtype))
    return reduced_in_parts(local, inputs, window_dimensions=sizes, padding=tuple(padding))


def _codes(spec: OpSpec) -> tuple[int, ...] | None:
    return reduction_codes(spec.region, spec.results)


def _window(sizes: str, *more: str) -> str:
    return ", ".join([f"window_dimensions = array<i64: {sizes}>", *more])


def _flop(spec: OpSpec) -> float:
    """All elements of a window are combined into one, in each result."""
    combined = math.prod(spec.attributes["window_dimensions"]) - 1
    return combined * sum(map(elements, spec.results))


def _chooses(spec: OpSpec) -> bool:
    return set(_codes(spec) or (SUM,)) <= {MAX, MIN}


def _batched(local: LocalOp) -> list[Value] | None:
    count, attributes = len(local.spec.results), local.spec.attributes
    if any(is_batched(local, k) for k in range(count, 2 * count)):
        return None
    ones = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    longer: dict[str, Any] = {name: [1, *attributes[name]] for name in ones if name in attributes}
    if "padding" in attributes:
        longer["padding"] = ((0, 0), *attributes["padding"])
    operands = [with_batch(local, k) for k in range(count)]
    return local.clone([*operands, *local.operands[count:]], **longer)


@rule(
    "reduce_window",
    traits=Reduction(flop=_flop, slides=True, chooses=_chooses, passes=combined_by_reducer),
    localize=_localize,
    examples=(
        op(
            "reduce_window",
            "4x8xf32, f32 -> 4x4xf32",
            _window("1, 2", "window_strides = array<i64: 1, 2>"),
            reducer("maximum f32"),
        ),
        op(
            "reduce_window",
            "4x6xf32, f32 -> 4x6xf32",
            _window("1, 6", "padding = dense<[[0, 0], [5, 0]]> : tensor<2x2xi64>"),
            reducer("add f32"),
        ),
        op(
            "reduce_window",
            "4x4xf32, f32 -> 4x8xf32",
            _window("1, 2", "base_dilations = array<i64: 1, 2>", "padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>"),
            reducer("add f32"),
        ),
        op("reduce_window", "4x6xf32, f32 -> 4x1xf32", _window("1, 6"), reducer("add f32")),
        op(
            "reduce_window",
            "4x12xf32, f32 -> 4x4xf32",
            _window("1, 2", "window_strides = array<i64: 1, 3>", "window_dilations = array<i64: 1, 2>"),
            reducer("add f32"),
        ),
        op(
            "reduce_window",
            "4x8xf32, 4x8xi32, f32, i32 -> 4x4xf32, 4x4xi32",
            _window("1, 2", "window_strides = array<i64: 1, 2>"),
            reducer("add f32", "minimum i32"),
        ),
        op("reduce_window", "4x6xi32, i32 -> 4x1xi32", _window("1, 6"), reducer("and i32")),
        op(
            "reduce_window",
            "2x8xf32, f32 -> 2x4xf32",
            _window("1, 3", "window_strides = array<i64: 1, 2>", "padding = dense<[[0, 0], [0, 1]]> : tensor<2x2xi64>"),
            reducer("maximum f32"),
        ),
        op(
            "reduce_window",
            "2x8xf32, 2x8xi32, f32, i32 -> 2x8xf32, 2x8xi32",
            _window("1, 3", "padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>"),
            reducer("add f32", "minimum i32"),
        ),
        op(
            "reduce_window",
            "2x4xf32, f32 -> 2x8xf32",
            _window("1, 3", "base_dilations = array<i64: 1, 2>", "padding = dense<[[0, 0], [1, 2]]> : tensor<2x2xi64>"),
            reducer("add f32"),
        ),
    ),
    omissions=(BITWISE,),
    batched=_batched,
)
def reduce_window(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims whose windows stay inside a slice, and dims that one window covers."""
    count = len(spec.results)
    codes = _codes(spec)
    found = windows(spec, spec.results[0].shape)
    pads = {SUM, MUL} & set(codes or ()) and any(w.low > 0 or w.high > 0 or w.dilation > 1 for w in found)
    halos: list[TileMapping] = []
    for d, window in enumerate(found):
        operands = (d,) * count + (WHOLE,) * count
        if window.tiles:
            yield TileMapping(operands, (d,) * count, window.extent)
        elif window.covers:
            if window.window_dilation == 1 and codes is not None and not pads:
                yield TileMapping(operands, codes, window.size)
        elif window.rows is not None and len(halos) < MOST_STRETCHED and (codes is not None or window.stays_inside):
            halos.append(stretched(spec, {k: (d, window.rows) for k in range(count)}, d))
    yield from halos
