"""The dims over which windows of a convolution or a `reduce_window` slide, and what places of its result read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from autopart.core.op import OpSpec, TensorType
from autopart.core.ops.rules.convolution import windows_of
from autopart.core.ops.rules.reduce_window import windows
from autopart.core.ops.rules.windows import Window
from autopart.core.passes.even_slices import ways
from autopart.core.passes.pattern_rewriter import PatternRewriter
from autopart.core.passes.program_pass import APART

EVENER = 4
"""How many times as many devices must be able to share a part as what it was joined to."""


class Space(NamedTuple):
    """One of them: a dim of operand 0 and of the result, the window, and its place in the op's padding."""

    read: int
    made: int
    window: Window
    place: int


def spaces_of(spec: OpSpec) -> list[Space]:
    """Those of an op of one result."""
    if spec.kind == "convolution":
        numbers = spec.attributes["dimension_numbers"]
        dims = zip(numbers["input_spatial_dimensions"], numbers["output_spatial_dimensions"], strict=True)
        return [Space(*d, window, k) for k, (d, window) in enumerate(zip(dims, windows_of(spec), strict=True))]
    if spec.kind == "reduce_window" and len(spec.results) == 1:
        return [Space(d, d, window, d) for d, window in enumerate(windows(spec, spec.results[0].shape))]
    return []


def evens_out(spec: OpSpec, dim: int) -> bool:
    """True if windows over a dim of operand 0 leave a dim that far more devices can share, or are as long as such."""
    spaces = [s.window for s in spaces_of(spec) if s.read == dim and s.window.dilation == 1]
    return any(ways(max(w.out, w.window)) >= EVENER * max(ways(w.size), 2) for w in spaces)


def over(
    at: PatternRewriter,
    op: int,
    operands: tuple[int, ...],
    made: Mapping[int, int],
    pads: Mapping[int, tuple[int, int]],
) -> int:
    """An op of windows over other operands: sizes of some dims of its result, and padding of some places."""
    spec, spaces = at.spec(op), spaces_of(at.spec(op))
    padding = [pads.get(s.place, (s.window.low, s.window.high)) for s in spaces]
    shape = tuple(made.get(d, n) for d, n in enumerate(spec.results[0].shape))
    [value] = at.again(op, operands, [TensorType(shape, spec.results[0].dtype)], padding=tuple(padding))
    at.rewriting.mark(value, APART)
    return value


def places_read(window: Window, begin: int, end: int) -> tuple[int, int]:
    """From where to where places of a result read: places of the padded and dilated dim, counted from element 0."""
    reach = (window.window - 1) * window.window_dilation + 1
    return begin * window.stride - window.low, (end - 1) * window.stride - window.low + reach
