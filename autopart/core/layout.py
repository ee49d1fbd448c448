"""Layouts packed into 64 bits: how a value is spread over the mesh.

One byte per mesh axis, axis 0 lowest:

    bits 0-4   0 the axis does not touch the value; 1+d it tiles dim d; `SUM` ... `OR` a reduction is pending on it
    bits 5-7   its place among the axes that tile the same dim, 0 the outermost

    f32[64,8] on {batch:4, model:2}, dim 0 tiled by batch, then model:   0b001_00001 0b000_00001

Equal layouts are equal integers, so kernels compare and hash them as such.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.op import MAX_RANK, REDUCTION_NAMES

ACTION_BITS, ACTION_MASK = 5, 31
LAST_TILE = MAX_RANK
"""Actions 1 .. LAST_TILE tile a dim; larger ones are pending reductions."""


@kernel
def action_of(layout: int, axis: int) -> int:
    """0, 1 + the dim that `axis` tiles, or the code of the reduction pending on it."""
    return np.int64((layout >> np.uint64(8 * axis)) & np.uint64(ACTION_MASK))


@kernel
def pack(actions: np.ndarray, stamps: np.ndarray) -> np.uint64:
    """The layout in which each axis has `actions[axis]`; of axes on one dim, the smaller stamp is outer."""
    layout, seen, again = np.uint64(0), 0, False
    for axis in range(actions.shape[0]):
        if actions[axis] != 0:
            layout |= np.uint64(actions[axis]) << np.uint64(8 * axis)
            again |= seen >> actions[axis] & 1 != 0
            seen |= 1 << actions[axis]
    if not again:
        return layout
    layout = np.uint64(0)
    for axis in range(actions.shape[0]):
        action = actions[axis]
        if action == 0:
            continue
        place = 0
        if action <= LAST_TILE:
            for other in range(actions.shape[0]):
                if actions[other] == action and (
                    stamps[other] < stamps[axis] or (stamps[other] == stamps[axis] and other < axis)
                ):
                    place += 1
        layout |= np.uint64(action | (place << ACTION_BITS)) << np.uint64(8 * axis)
    return layout


def axes_by_dim(layout: int, axis_count: int, rank: int) -> tuple[tuple[int, ...], ...]:
    """Per dim, the axes that tile it, outermost first."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(rank)]
    for axis in range(axis_count):
        byte = (int(layout) >> 8 * axis) & 0xFF
        action, place = byte & ACTION_MASK, byte >> ACTION_BITS
        if 0 < action <= LAST_TILE:
            found[action - 1].append((place, axis))
    return tuple(tuple(axis for _, axis in sorted(dim)) for dim in found)


def pending_axes(layout: int, axis_count: int) -> tuple[tuple[int, int], ...]:
    """(axis, reduction code) of every reduction that is still pending."""
    codes = ((axis, (int(layout) >> 8 * axis) & ACTION_MASK) for axis in range(axis_count))
    return tuple((axis, code) for axis, code in codes if code > LAST_TILE)


@kernel
def local_elements(shape: np.ndarray, layout: np.uint64, axis_sizes: np.ndarray) -> float:
    """Elements that one device holds of a value of `shape` (padded with ones) in `layout`."""
    elements = 1.0
    for dim in range(shape.shape[0]):
        elements *= shape[dim]
    for axis in range(axis_sizes.shape[0]):
        action = action_of(layout, axis)
        if 0 < action <= LAST_TILE:
            elements /= axis_sizes[axis]
    return elements


def local_shape(shape: tuple[int, ...], layout: int, axis_sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that one device holds."""
    result = list(shape)
    for dim, axes in enumerate(axes_by_dim(layout, len(axis_sizes), len(shape))):
        for axis in axes:
            result[dim] //= axis_sizes[axis]
    return tuple(result)


def describe(layout: int, axis_names: tuple[str, ...], rank: int) -> str:
    """A layout as text: `[{batch},{}] sum{model}`."""
    dims = axes_by_dim(layout, len(axis_names), rank)
    text = "[" + ",".join("{" + ",".join(axis_names[a] for a in dim) + "}" for dim in dims) + "]"
    pending = [f"{REDUCTION_NAMES[code]}{{{axis_names[a]}}}" for a, code in pending_axes(layout, len(axis_names))]
    return " ".join([text, *pending])
