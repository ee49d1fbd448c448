"""Tile mappings of select_and_scatter, the gradient of max pooling.

x[i,2k], gradient[i,k], init -> y[i,2k]

i  (0, 0, _) -> tile 0      no window
k  (1, 1, _) -> tile 1      windows that do not overlap stay inside a slice
k  (1, 1, _) -> tile 1      of windows that do, a device computes all that touch its tile of y, with what they read:

    windows of 3, stride 2, padded after     x          0 1 | 2 3 | 4 5 | 6 7
                                             windows    012   234   456   67
                                             tile 2 3   windows 0 and 1, which read 0 to 4; y is cut out

What is outside x is what no comparison selects before an element; windows outside have no gradient. A window that holds
nothing but the least number, behind padding, gives no gradient, as it does on CPU and GPU, where jax pads.

XLA computes nothing inside it: the array that was pooled waits in memory for it, from the forward to the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from autopart.core.op import MAX, MIN, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import combined_by_reducer, reduction_codes
from autopart.core.ops.rules.reduce import identity
from autopart.core.ops.rules.reduce_window import windows
from autopart.core.ops.rules.stretches import MOST_STRETCHED, filled, reads_of, stretched
from autopart.core.ops.rules.windows import MOST_HALO, Window
from autopart.core.ops.traits import Opaque, elements
from autopart.core.stretch import Stretch

EXPANDED = "expanded"
"""The attribute of one that had a pad of its own, and is emitted so: of some that pad themselves, XLA's CPU backend
adds up the wrong elements, and its GPU backend crashes."""

_SELECTS = {"GE": MAX, "GT": MAX, "LE": MIN, "LT": MIN}


def least(spec: OpSpec) -> np.generic | float | None:
    """What is selected after any element; None where it is not known how elements are selected."""
    code = _SELECTS.get(spec.attributes.get("selected_by", ""))
    return None if code is None else identity(code, spec.operands[0].dtype)


def _touching(window: Window) -> tuple[int, int] | None:
    """Windows before and behind those of a tile that touch it; None where tiles of both sides do not fit together."""
    if window.low < 0 or window.low >= window.window or window.size != window.stride * window.out:
        return None
    before, behind = (
        (window.window - 1 - window.low) // window.stride,
        (window.stride - 1 + window.low) // window.stride,
    )
    read = window.stride * (before + behind) + window.window
    return (before, behind) if read - window.stride <= MOST_HALO * window.size else None


def _overlapping(spec: OpSpec, dim: int, window: Window) -> TileMapping | None:
    if reduction_codes(spec.region, spec.results) != (SUM,) or least(spec) is None:
        return None
    touching = _touching(window)
    if touching is None:
        return None
    (before, behind), stride, count = touching, window.stride, window.out
    read = Stretch(count, stride * before + window.low, stride, stride * (before + behind) + window.window)
    gradient = Stretch(count, before, 1, before + behind + 1)
    return stretched(spec, {0: (dim, read), 1: (dim, gradient)}, dim)


def _localize(local: LocalOp) -> list[Value]:
    """On stretches, and where padding is expanded, on what is padded already; the tile is cut out of the result.
    What no window reads, where padding is negative, is as the sum begins."""
    spec, value = local.spec, local.operands[0]
    shape, found = local.operand_types[0].shape, windows(spec, spec.operands[1].shape)
    reads = {read.dim: read for read in reads_of(local) if read.operand == 0}
    padding = [(window.low, window.high) for window in found]
    expanded = [d for d, ends in enumerate(padding) if spec.attributes.get(EXPANDED) and d not in reads and any(ends)]
    if not reads and not expanded:
        return local.clone()
    fill, starts, sizes = least(spec), [0] * len(padding), list(shape)
    for dim, read in reads.items():
        value = filled(local, value, read, fill)
        starts[dim], sizes[dim], padding[dim] = read.stretch.low, local.result_types[0].shape[dim], (0, 0)
    left_out = [[0] * len(padding), [0] * len(padding)]
    if expanded:
        low, high = ([padding[d][side] if d in expanded else 0 for d in range(len(padding))] for side in (0, 1))
        value = local.pad(value, local.constant(fill, local.operand_types[0].dtype), low, high)
        for dim in expanded:
            starts[dim], padding[dim] = max(low[dim], 0), (0, 0)
            left_out[0][dim], left_out[1][dim] = max(-low[dim], 0), max(-high[dim], 0)
            sizes[dim] -= left_out[0][dim] + left_out[1][dim]
    whole = TensorType(local.type_of(value).shape, spec.results[0].dtype)
    [made] = local.clone([value, *local.operands[1:]], [whole], padding=tuple(padding))
    made = local.slice(made, starts, [start + size for start, size in zip(starts, sizes, strict=True)])
    return [local.pad(made, local.operands[2], *left_out) if any(map(any, left_out)) else made]


_SELECT = (
    "^bb0(%a: tensor<f32>, %b: tensor<f32>): "
    '%p = "stablehlo.compare"(%a, %b) {comparison_direction = #stablehlo<comparison_direction GE>} '
    ": (tensor<f32>, tensor<f32>) -> tensor<i1> "
    '"stablehlo.return"(%p) : (tensor<i1>) -> ()'
)
_ADD = reducer("add f32")


def _flop(spec: OpSpec) -> float:
    """Per window one comparison less than it has elements, and one addition."""
    return math.prod(spec.attributes["window_dimensions"]) * elements(spec.operands[1])


def _example(types: str, sizes: str, strides: str, padding: str = "") -> Example:
    attributes = f"window_dimensions = array<i64: {sizes}>, window_strides = array<i64: {strides}>"
    padded = f", padding = dense<{padding}> : tensor<{len(sizes.split(','))}x2xi64>" if padding else ""
    return op("select_and_scatter", types, attributes + padded, f"{_SELECT}}}, {{{_ADD}")


@rule(
    "select_and_scatter",
    traits=Opaque(flop=_flop, passes=lambda spec: combined_by_reducer(spec, whole=(0,)), slides=True),
    localize=_localize,
    examples=(
        _example("4x4x8xf32, 4x2x4xf32, f32 -> 4x4x8xf32", "1, 2, 3", "1, 2, 2", "[[0, 0], [0, 0], [1, 0]]"),
        _example("4x8xf32, 4x4xf32, f32 -> 4x8xf32", "1, 2", "1, 2"),
        _example("4x8xf32, 4x4xf32, f32 -> 4x8xf32", "1, 3", "1, 2", "[[0, 0], [0, 1]]"),
        _example("2x8xf32, 2x4xf32, f32 -> 2x8xf32", "1, 3", "1, 2", "[[0, 0], [1, 0]]"),
        _example("2x8xf32, 2x8xf32, f32 -> 2x8xf32", "1, 3", "1, 1", "[[0, 0], [1, 1]]"),
        _example("8x4xf32, 4x2xf32, f32 -> 8x4xf32", "3, 2", "2, 2", "[[1, 0], [0, 0]]"),
    ),
)
def select_and_scatter(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims whose windows stay inside a slice, and those where what is read of neighbours is little."""
    shared: list[TileMapping] = []
    for d, window in enumerate(windows(spec, spec.operands[1].shape)):
        if window.tiles:
            yield TileMapping((d, d, WHOLE), (d,), window.extent)
        elif len(shared) < MOST_STRETCHED and (mapping := _overlapping(spec, d, window)) is not None:
            shared.append(mapping)
    yield from shared
