"""Convolutions in groups: the share of its tiles in the matrix unit that each group fills.

    %y = convolution %x, %w      bf16[16,14,14,512], 32 groups of 16 features: images are rows, of 8 at least, and
                                 features fill 16 of 128 lanes
    of 64 images                 rows are 16 features, and images fill 64 of 128 lanes: 4 times the share
    gradient of the kernel       rows are features read; with features along the lanes taps lie side by side

What a convolution leaves lies in memory so, in tiles of each group: 4 features of 16 images take 8 times their bytes.

Convolutions with a window of their own for each task, as `vmap` makes them, are such groups, of images or features.
Groups never share a tile, nor do taps, but in the gradient of a kernel. What is emitted has as many as fill a tile as
one (`core/ops/groups_as_one.py`): those are the groups here. Found with libtpu 0.0.51 on v5e: 42 shapes of 16 groups of
4 to 64 features with 8 to 256 images, and 16 of 4 to 16 tasks, each forward and both gradients
(`tests/cost/test_grouped_tiles.py`). Groups of one feature are told in `core/ops/rules/convolution.py`.
"""

from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arrays import F32_BYTES


@kernel
def share_of_group(
    inner: float, columns: float, images: float, taps: int, in_rows: bool, tile: tuple[int, int, int], sublanes: int
) -> float:
    """The share of its tiles that a group fills.

    inner, columns, images, taps, in_rows  of one group, as in `op_work.share_filled`
    sublanes                               rows of a layout tile, the fewest that run through the matrix unit
    """
    of_columns, of_images, of_inner = _fills(columns, tile[1]), _fills(images, tile[1]), _fills(inner, tile[2])
    along_images = _lies_along_images(inner, columns, images, tile[1], sublanes)
    if not in_rows and along_images:
        return of_inner * of_images * _fills(columns, sublanes)
    if not in_rows:
        return of_inner * of_columns * _fills(images, sublanes)
    if not along_images:
        return of_columns * _fills(inner * taps, tile[2])
    beside = taps if inner < sublanes and columns * taps <= tile[1] else 1
    return _fills(columns * beside, tile[1]) * _fills(inner, sublanes) * of_images


@kernel
def _lies_along_images(inner: float, columns: float, images: float, lanes: int, sublanes: int) -> bool:
    """True where images fill more of the lanes than the features of one group do, with the others as rows."""
    of_features = max(_fills(inner, lanes), _fills(columns, lanes))
    return _fills(images, lanes) * _fills(columns, sublanes) > of_features * _fills(images, sublanes)


@kernel
def padded_groups(
    inner: float, columns: float, images: float, element_bytes: float, layout_tile: tuple[int, int]
) -> float:
    """How many times their elements images take in layout tiles of one group's features, as its product leaves them.

    inner, columns, images  as in `share_of_group`
    """
    rows, lanes = layout_tile
    full_rows = rows * max(1.0, F32_BYTES / element_bytes)
    if _lies_along_images(inner, columns, images, lanes, rows):
        return 1.0 / (_fills(images, lanes) * _fills(columns, _rows_of(columns, full_rows)))
    return 1.0 / (_fills(columns, lanes) * _fills(images, _rows_of(images, full_rows)))


@kernel
def _rows_of(size: float, full_rows: float) -> int:
    """Rows of a layout tile of so many elements: a power of two, where they are fewer than a full one's."""
    rows = 1
    while rows < size and rows < full_rows:
        rows *= 2
    return rows


@kernel
def _fills(size: float, tile: int) -> float:
    """The share of whole tiles that elements fill."""
    return float(size / (np.ceil(size / tile) * tile)) if size > 0 else 1.0
