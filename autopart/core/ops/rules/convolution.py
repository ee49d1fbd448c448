"""Tile mappings of convolution.

    lhs[b,f,x] * rhs[o,f,k] -> out[b,o,y]

    b  (0, _) -> tile 0        batch
    o  (_, 0) -> tile 1        output features
    f  (1, 1) -> sum           input features: partial sums
    g  (1, 0) -> tile 1        feature groups, instead of o and f, where there are any
    x  (2, _) -> tile 2        space, where every window stays inside one slice, or reads a halo of its neighbours'
    x  (2, 2) -> sum           space of a weight's gradient, in which the window is as long as the space

Windows stay inside where they do not overlap and nothing is padded: 1x1 kernels, patches (kernel no larger than the
stride), and the two gradients of patches. Elsewhere a device is sent the borders of its neighbours' slices, and the op
on what it then has pads nothing. A kernel that reaches over half the space would bring most of it to every device:
blocked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from autopart.core.op import WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.batching import all_batched, batch_size
from autopart.core.ops.passages import linear_in
from autopart.core.ops.rule import Example, LocalOp, Value, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.rules.factors import reduction_code
from autopart.core.ops.rules.stretches import reads_of, stretched
from autopart.core.ops.rules.windows import Window
from autopart.core.ops.traits import FEW_FEATURES, Convolution, Sides


def windows_of(spec: OpSpec) -> list[Window]:
    """The window of each dim of space."""
    numbers, attributes = spec.attributes["dimension_numbers"], spec.attributes
    lhs, rhs = (t.shape for t in spec.operands)
    out = spec.results[0].shape
    rank = len(numbers["input_spatial_dimensions"])
    ones = (1,) * rank
    columns = zip(
        [lhs[d] for d in numbers["input_spatial_dimensions"]],
        [rhs[d] for d in numbers["kernel_spatial_dimensions"]],
        [out[d] for d in numbers["output_spatial_dimensions"]],
        attributes.get("window_strides") or ones,
        [low for low, _ in attributes.get("padding") or ((0, 0),) * rank],
        [high for _, high in attributes.get("padding") or ((0, 0),) * rank],
        attributes.get("lhs_dilation") or ones,
        attributes.get("rhs_dilation") or ones,
        attributes.get("window_reversal") or (False,) * rank,
        strict=True,
    )
    return [Window(*column) for column in columns]


def _flop(spec: OpSpec) -> float:
    """Multiply-adds whose input lies inside the array: padding and the holes of a dilated input are not counted."""
    numbers, out = spec.attributes["dimension_numbers"], spec.results[0].shape
    pairs = math.prod(map(_pairs_inside, windows_of(spec)))
    features = (
        out[numbers["output_feature_dimension"]] * spec.operands[1].shape[numbers["kernel_input_feature_dimension"]]
    )
    return 2.0 * pairs * features * out[numbers["output_batch_dimension"]]


def _sides(spec: OpSpec) -> Sides:
    """`_filling`, and what a library does in padding."""
    windows = windows_of(spec)
    done = math.prod(w.out * w.window / w.dilation for w in windows)
    return _filling(spec)._replace(in_padding=max(1.0, done / max(1, math.prod(map(_pairs_inside, windows)))))


def _filling(spec: OpSpec) -> Sides:
    """Input and output features; of the gradient of a kernel those of the kernel.

    What that sums over, the images and their places, streams through the matrix unit as it does in the convolution
    itself. The features of groups lie in no one tile: of groups of one feature each tap is one row of a tile, and is
    one in padding and in holes, too, but for the holes along all dims of space but the last, as libtpu 0.0.51 counts on
    v5e. Of fewer than `FEW_FEATURES` all places of a window lie side by side, and those of the kernel's gradient stream
    through.
    """
    numbers = spec.attributes["dimension_numbers"]
    kernel, groups = spec.operands[1].shape, spec.attributes["feature_group_count"]
    of_one = numbers["kernel_input_feature_dimension"], numbers["kernel_output_feature_dimension"]
    if groups > 1 and tuple(kernel[d] for d in of_one) == (1, groups):
        return Sides(columns=(numbers["output_feature_dimension"],), taps=0, walked=_walked(windows_of(spec)))
    if _sums_each_feature(spec):
        return Sides(columns=(numbers["output_feature_dimension"],))
    windows, columns = windows_of(spec), (numbers["output_feature_dimension"],)
    if spec.attributes["feature_group_count"] != 1 or spec.attributes["batch_group_count"] != 1:
        return _sides_of_groups(spec, windows, columns)
    if _of_kernel(spec):
        images, rows = (numbers["input_feature_dimension"],), numbers["output_batch_dimension"]
        if spec.results[0].shape[rows] < FEW_FEATURES:
            return Sides(columns=columns)
        return Sides(columns=columns, rows=(rows,), taps=windows[-1].out, images=images)
    few = spec.operands[0].shape[numbers["input_feature_dimension"]] < FEW_FEATURES
    taps = (math.prod(w.window for w in windows) if few else windows[-1].window) if windows else 1
    images = (numbers["input_batch_dimension"],)
    apart = math.prod(w.dilation for w in windows)
    inner = (numbers["input_feature_dimension"],)
    return Sides(inner, columns, taps=taps, images=images, apart=apart, inner_last=_sums_last(spec))


def _sides_of_groups(spec: OpSpec, windows: list[Window], columns: tuple[int, ...]) -> Sides:
    """The same of a convolution in groups: of features, which cut the left operand's features, or of its images."""
    numbers, of_gradient = spec.attributes["dimension_numbers"], windows[-1].out if windows else 1
    features, images = numbers["input_feature_dimension"], numbers["input_batch_dimension"]
    of_features, of_images = spec.attributes["feature_group_count"], spec.attributes["batch_group_count"]
    if _of_kernel(spec):
        groups, rows = (1, of_features * of_images, of_features), (numbers["output_batch_dimension"],)
        return Sides(columns=columns, rows=rows, taps=of_gradient, images=(features,), groups=groups)
    groups, apart = (of_features, of_features * of_images, of_images), math.prod(w.dilation for w in windows)
    taps, inner_last = windows[-1].window if windows else 1, _sums_last(spec)
    return Sides((features,), columns, taps=taps, images=(images,), apart=apart, groups=groups, inner_last=inner_last)


def _sums_last(spec: OpSpec) -> bool:
    """True where the last dim of the kernel is summed over."""
    numbers = spec.attributes["dimension_numbers"]
    return numbers["kernel_input_feature_dimension"] == len(spec.operands[1].shape) - 1


def _of_kernel(spec: OpSpec) -> bool:
    """True for a convolution whose window, with its holes, reaches over more than its result has places times steps."""
    windows = windows_of(spec)
    reach = math.prod((w.window - 1) * w.window_dilation + 1 for w in windows)
    return reach > math.prod(w.out * w.stride for w in windows)


def _walked(windows: list[Window]) -> float:
    """Pairs of a place of the window and an element of the result over those that meet an element of the input."""
    walked = math.prod(w.out * w.window / (w.dilation if w is not windows[-1] else 1) for w in windows)
    return walked / max(1, math.prod(map(_pairs_inside, windows)))


def _sums_each_feature(spec: OpSpec) -> bool:
    """True for the gradient of a kernel that has a window for each feature."""
    numbers, groups = spec.attributes["dimension_numbers"], spec.attributes["batch_group_count"]
    return 1 < groups == spec.operands[1].shape[numbers["kernel_output_feature_dimension"]]


def _on_vector(spec: OpSpec) -> float | None:
    """A multiplication and an addition for each place of the window, in padding and holes, too: libtpu 0.0.51 on v5e
    counts half a cycle for 8 x 128 elements and place."""
    if not _sums_each_feature(spec):
        return None
    return _walked(windows_of(spec)) * _flop(spec)


def _pairs_inside(window: Window) -> int:
    """Along one dim: pairs of a place of the window and an element of it that meet an element of the input."""
    at = np.arange(window.out)[:, None] * window.stride - window.low
    at = at + np.arange(window.window) * window.window_dilation
    return int(((at >= 0) & (at <= (window.size - 1) * window.dilation) & (at % window.dilation == 0)).sum())


def _conv(types: str, numbers: str, groups: str = "1, 1", extra: str = "") -> Example:
    feature, batch = groups.split(", ")
    attributes = (
        f"dimension_numbers = #stablehlo.conv<{numbers}>, feature_group_count = {feature} : i64, "
        f"batch_group_count = {batch} : i64{', ' + extra if extra else ''}"
    )
    return op("convolution", types, attributes)


_IMAGES = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
_LINES = "[b, f, 0]x[o, i, 0]->[b, f, 0]"


def _localize(local: LocalOp) -> list[Value]:
    """Groups are cut along with the features that they group; what was padding is in the stretches."""
    counts: dict[str, Any] = {}
    space = local.spec.attributes["dimension_numbers"]["input_spatial_dimensions"]
    padding = list(local.spec.attributes.get("padding") or ((0, 0),) * len(space))
    for read in reads_of(local):
        padding[space.index(read.dim)] = read.stretch.ahead(read.ways), read.stretch.behind(read.ways)
        counts["padding"] = tuple(padding)
    for m, mapping in enumerate(local.mappings):
        if (name := _group_of(local.spec, mapping)) and local.ways(m) > 1:
            counts[name] = local.spec.attributes[name] // local.ways(m)
    operands = local.operands
    if "padding" in counts:
        operands, counts["padding"] = _with_longer_windows(local, padding)
    return local.clone(operands, **counts)


def _with_longer_windows(
    local: LocalOp, padding: list[tuple[int, int]]
) -> tuple[list[Value], tuple[tuple[int, int], ...]]:
    """Operands and padding of an equal convolution whose windows XLA's simplifier does not take for groups.

    It swaps input and kernel where the kernel is larger, but keeps a dim where holes are as long as the window, which
    moves by one less, and nothing is padded. If the input has not the window's length, XLA ends the process:
    "Window dimensions do not match RHS shape". A zero at the window's end reads one place of padding.
    """
    spec, (lhs, rhs), longer = local.spec, local.operands, list(padding)
    numbers = spec.attributes["dimension_numbers"]
    high = [0] * len(local.operand_types[1].shape)
    for i, window in enumerate(windows_of(spec)):
        kernel = numbers["kernel_spatial_dimensions"][i]
        length = local.operand_types[1].shape[kernel]
        is_swapped_wrongly = (
            window.dilation == length > 1 and window.stride == length - 1 and window.window_dilation == 1
        )
        if is_swapped_wrongly and padding[i] == (0, 0) and not window.reversed:
            high[kernel], longer[i] = 1, (0, 1)
    if any(high):
        zero = local.constant(0, local.operand_types[1].dtype)
        rhs = local.pad(rhs, zero, [0] * len(high), high)
    return [lhs, rhs], tuple(longer)


def _group_of(spec: OpSpec, mapping: TileMapping) -> str:
    """Which group count a mapping divides: that of groups cuts lhs and the kernel's output features together."""
    numbers = spec.attributes["dimension_numbers"]
    if mapping.operands[1] != numbers["kernel_output_feature_dimension"]:
        return ""
    if mapping.operands[0] == numbers["input_feature_dimension"]:
        return "feature_group_count"
    return "batch_group_count" if mapping.operands[0] == numbers["input_batch_dimension"] else ""


def _minor_dims(spec: OpSpec) -> tuple[int, int]:
    numbers = spec.attributes["dimension_numbers"]
    return numbers["output_feature_dimension"], numbers["output_batch_dimension"]


def _read_minor_dims(spec: OpSpec) -> tuple[int, int]:
    numbers = spec.attributes["dimension_numbers"]
    return numbers["input_feature_dimension"], numbers["input_batch_dimension"]


def _batched(local: LocalOp) -> list[Value]:
    """The new dim becomes the major part of features, in groups of these or of the batch: as `jax.vmap` has it."""
    attributes, numbers = local.spec.attributes, local.spec.attributes["dimension_numbers"]
    kind = "batch" if attributes["batch_group_count"] > 1 else "feature"
    features = numbers[f"input_{kind}_dimension"], numbers["kernel_output_feature_dimension"]
    merged = [local.reshape(*_moved_in(local, x, dim)) for x, dim in zip(all_batched(local), features, strict=True)]
    size, out, dim = batch_size(local), local.spec.results[0], numbers["output_feature_dimension"]
    shape = (*out.shape[:dim], size * out.shape[dim], *out.shape[dim + 1 :])
    groups = {f"{kind}_group_count": size * attributes[f"{kind}_group_count"]}
    [made] = local.clone(merged, [TensorType(shape, out.dtype)], **groups)
    apart = local.reshape(made, (*out.shape[:dim], size, *out.shape[dim:]))
    rest = [d for d in range(len(out.shape) + 1) if d != dim]
    return [local.transpose(apart, [dim, *rest])]


def _moved_in(local: LocalOp, value: Value, dim: int) -> tuple[Value, tuple[int, ...]]:
    """A value with its first dim in front of what was dim `dim` before, and the shape in which the two are one."""
    size, *shape = local.type_of(value).shape
    order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
    return local.transpose(value, order), (*shape[:dim], size * shape[dim], *shape[dim + 1 :])


@rule(
    "convolution",
    traits=Convolution(
        flop=_flop,
        sides=_sides,
        minor_dims=_minor_dims,
        read_minor_dims=_read_minor_dims,
        of_kernel=_of_kernel,
        on_vector=_on_vector,
        passes=linear_in(0, 1),
    ),
    localize=_localize,
    batched=_batched,
    examples=(
        _conv("4x6x6x2xf32, 3x3x2x4xf32 -> 4x4x4x4xf32", _IMAGES),
        _conv("2x4x4xf32, 6x4x1xf32 -> 2x6x4xf32", _LINES),
        _conv("2x8x4xf32, 12x2x1xf32 -> 2x12x4xf32", _LINES, "4, 1"),
        _conv("2x4x4xf32, 4x1x3xf32 -> 2x4x2xf32", _LINES, "4, 1"),
        _conv("8x4x4xf32, 4x4x1xf32 -> 2x4x4xf32", _LINES, "1, 4"),
        _conv("2x2x8xf32, 4x2x2xf32 -> 2x4x4xf32", _LINES, extra="window_strides = array<i64: 2>"),
        _conv(
            "2x2x12xf32, 4x2x2xf32 -> 2x4x4xf32",
            _LINES,
            extra="window_strides = array<i64: 3>, padding = dense<[[0, -1]]> : tensor<1x2xi64>",
        ),
        _conv(
            "2x2x4xf32, 4x2x2xf32 -> 2x4x8xf32",
            _LINES,
            extra="lhs_dilation = array<i64: 2>, padding = dense<[[1, 1]]> : tensor<1x2xi64>",
        ),
        _conv(
            "2x2x8xf32, 4x2x4xf32 -> 2x4x2xf32",
            _LINES,
            extra="rhs_dilation = array<i64: 2>",
        ),
        _conv("2x2x4xf32, 4x2x4xf32 -> 2x4x1xf32", _LINES),
        _conv(
            "2x2x4xf32, 4x2x4xf32 -> 2x4x1xf32",
            _LINES,
            extra="window_reversal = array<i1: true>",
        ),
        _conv("2x2x4xf32, 4x2x3xf32 -> 2x4x4xf32", _LINES, extra="padding = dense<1> : tensor<1x2xi64>"),
        _conv("4x6xi32, 6x8xi32 -> 4x8xi32", "[b, f]x[i, o]->[b, f]"),
        _conv("2x2x12xf32, 4x2x3xf32 -> 2x4x12xf32", _LINES, extra="padding = dense<1> : tensor<1x2xi64>"),
        _conv("2x2x8xf32, 4x2x8xf32 -> 2x4x3xf32", _LINES, extra="padding = dense<1> : tensor<1x2xi64>"),
        _conv(
            "2x2x8xf32, 4x2x3xf32 -> 2x4x4xf32",
            _LINES,
            extra="window_strides = array<i64: 2>, padding = dense<[[0, 1]]> : tensor<1x2xi64>",
        ),
        _conv(
            "2x2x4xf32, 4x2x3xf32 -> 2x4x8xf32",
            _LINES,
            extra="lhs_dilation = array<i64: 2>, padding = dense<[[2, 1]]> : tensor<1x2xi64>, "
            "window_reversal = array<i1: true>",
        ),
        _conv(
            "2x2x8xf32, 4x2x4xf32 -> 2x4x3xf32",
            _LINES,
            extra="rhs_dilation = array<i64: 2>, padding = dense<[[0, 1]]> : tensor<1x2xi64>",
        ),
        _conv(
            "2x2x8xf32, 4x2x8xf32 -> 2x4x3xf32",
            _LINES,
            extra="window_reversal = array<i1: true>, padding = dense<1> : tensor<1x2xi64>",
        ),
        _conv("2x2x8xf32, 4x2x3xf32 -> 2x4x6xf32", _LINES),
        _conv("2x2x8xf32, 4x2x3xf32 -> 2x4x4xf32", _LINES, extra="rhs_dilation = array<i64: 2>"),
        _conv("1x8x4x1xf32, 3x3x1x2xf32 -> 1x8x4x2xf32", _IMAGES, extra="padding = dense<1> : tensor<2x2xi64>"),
        _conv(
            "2x4x4x1xf32, 2x8x8x2xf32 -> 4x4x1x2xf32",
            "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]",
            extra="lhs_dilation = array<i64: 2, 2>, padding = dense<2> : tensor<2x2xi64>",
        ),
    ),
)
def convolution(spec: OpSpec) -> Iterable[TileMapping]:
    """Batch, output features, input features or groups, and space where windows stay inside a slice."""
    n = spec.attributes["dimension_numbers"]
    feature_groups, batch_groups = spec.attributes["feature_group_count"], spec.attributes["batch_group_count"]
    lhs, rhs = (t.shape for t in spec.operands)
    batch, features, space = n["input_batch_dimension"], n["input_feature_dimension"], n["input_spatial_dimensions"]
    inputs, outputs = n["kernel_input_feature_dimension"], n["kernel_output_feature_dimension"]
    code = reduction_code("add", spec.results[0])
    if batch_groups > 1:
        yield TileMapping((batch, outputs), (n["output_feature_dimension"],), batch_groups)
    else:
        yield TileMapping((batch, WHOLE), (n["output_batch_dimension"],), lhs[batch])
    if feature_groups > 1:
        yield TileMapping((features, outputs), (n["output_feature_dimension"],), feature_groups)
    elif batch_groups == 1:
        yield TileMapping((WHOLE, outputs), (n["output_feature_dimension"],), rhs[outputs])
    if feature_groups == 1 and code is not None:
        yield TileMapping((features, inputs), (code,), lhs[features])
    for i, window in enumerate(windows_of(spec)):
        if window.tiles:
            yield TileMapping((space[i], WHOLE), (n["output_spatial_dimensions"][i],), window.extent)
        elif window.covers and code is not None:
            yield TileMapping((space[i], n["kernel_spatial_dimensions"][i]), (code,), window.window)
        elif window.rows is not None:
            yield stretched(spec, {0: (space[i], window.rows)}, n["output_spatial_dimensions"][i])
        elif window.parts is not None and code is not None:
            yield stretched(spec, {0: (space[i], window.parts)}, code, {1: n["kernel_spatial_dimensions"][i]})
