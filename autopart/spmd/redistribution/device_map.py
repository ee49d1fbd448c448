"""Device maps: which device plays the part of which point of the mesh (section 6 of the paper).

    [1{y1,x}12]       cut by x:4, then by y1:3; the tiles of a device and its neighbour along y1 are adjacent
    [1{x2,y1,x1}12]   the same 12 tiles; under another device map, every device holds the tile it held before

Rewriting a type so that other axes stand minor-most costs nothing: no data moves, the names of the devices do. It lets
a collective take away a factor of 2 from a dim whose minor-most axis has size 3. What is left to undo is one
all_permute at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autopart.spmd.redistribution.primes import PrimeAxes, PrimeLayout
from autopart.spmd.redistribution.types import device_strides


def rewritten(
    axes: PrimeAxes, layout: PrimeLayout, view: PrimeLayout, devices: Sequence[int] | None
) -> tuple[int, ...]:
    """The device map under which `view` places the tiles as `layout` does under `devices`.

    `view` cuts each dim by the same axes as `layout`, in another order.
    """
    strides = device_strides(axes.mesh)
    weight = [strides[a.name] * a.stride for a in axes.axes]
    count = 1
    for _, size in axes.mesh:
        count *= size
    points = np.arange(count)
    moved = points.copy()
    for parts, ordered in zip(layout, view, strict=True):
        if parts == ordered:
            continue
        tile = np.zeros(count, np.int64)
        for a in parts:
            digit = points // weight[a] % axes.sizes[a]
            tile = tile * axes.sizes[a] + digit
            moved -= digit * weight[a]
        for a in reversed(ordered):
            moved += tile % axes.sizes[a] * weight[a]
            tile //= axes.sizes[a]
    device_of = np.arange(count) if devices is None else np.array(devices)
    result = np.empty(count, np.int64)
    result[moved] = device_of
    return tuple(result.tolist())
