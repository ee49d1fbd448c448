"""Convolutions in groups: the share of its tiles in the matrix unit that each group fills.

    %y = convolution %x, %w      bf16[100,14,14,256], 4 groups of 64 features: a tile of 128 x 128 for each, 0.25 filled
    images along the lanes       100 of 128 fill more than 64 features do: 0.5 x 0.78, features summed over by images
    gradient of the kernel       0.5 x 0.78 so; with features along the lanes taps of the window lie side by side

Convolutions with a window of their own for each task, as `vmap` makes them, are such groups, of images or features.
Groups never share a tile, nor do taps, but in the gradient of a kernel. Found with libtpu 0.0.51 on v5e: 16 shapes of 4
to 16 groups, each forward and both gradients, and 3 of 4 to 32 groups of features (`tests/cost/test_grouped_tiles.py`).
Groups of one feature are told in `core/ops/rules/convolution.py`.
"""

from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel


@kernel
def share_of_group(
    inner: float, columns: float, images: float, taps: int, in_rows: bool, tile: tuple[int, int, int]
) -> float:
    """The share of its tiles that a group fills.

    inner, columns, images, taps, in_rows  of one group, as in `op_work.share_filled`
    """
    of_columns, of_images, of_inner = _fills(columns, tile[1]), _fills(images, tile[1]), _fills(inner, tile[2])
    in_lanes = of_images > (of_columns if in_rows else of_inner)
    if in_rows:
        return of_columns * (of_images if in_lanes else _fills(inner * taps, tile[2]))
    by_images = min(1.0, columns / tile[0]) * of_images if in_lanes else 0.0
    return of_inner * max(of_columns, by_images)


@kernel
def _fills(size: float, tile: int) -> float:
    """The share of whole tiles that elements fill."""
    return float(size / (np.ceil(size / tile) * tile)) if size > 0 else 1.0
