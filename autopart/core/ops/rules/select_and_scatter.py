"""Tile mappings of select_and_scatter, the gradient of max pooling.

x[i,2k], gradient[i,k], init -> y[i,2k]

i  (0, 0, _) -> tile 0      no window
k  (1, 1, _) -> tile 1      windows that do not overlap stay inside a slice
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autopart.core.op import WHOLE, OpSpec, TileMapping
from autopart.core.ops.rule import rule
from autopart.core.ops.rules.example_text import op, reducer
from autopart.core.ops.rules.factors import combined_by_reducer
from autopart.core.ops.rules.reduce_window import windows
from autopart.core.ops.traits import Reduction, elements

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


@rule(
    "select_and_scatter",
    traits=Reduction(flop=_flop, passes=lambda spec: combined_by_reducer(spec, whole=(0,))),
    examples=(
        op(
            "select_and_scatter",
            "4x8xf32, 4x4xf32, f32 -> 4x8xf32",
            "window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>",
            f"{_SELECT}}}, {{{_ADD}",
        ),
        op(
            "select_and_scatter",
            "4x8xf32, 4x4xf32, f32 -> 4x8xf32",
            "window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>, "
            "padding = dense<[[0, 0], [0, 1]]> : tensor<2x2xi64>",
            f"{_SELECT}}}, {{{_ADD}",
        ),
    ),
)
def select_and_scatter(spec: OpSpec) -> Iterable[TileMapping]:
    """Dims whose windows stay inside a slice."""
    for d, window in enumerate(windows(spec, spec.operands[1].shape)):
        if window.tiles:
            yield TileMapping((d, d, WHOLE), (d,), window.extent)
