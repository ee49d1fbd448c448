"""Convolutions of images with holes between their places: the gradients of the inputs of convolutions with strides.

    %dx = convolution %dy, %w      f32[8,16,16,64] -> f32[8,32,32,64], windows of 3 x 3, a hole behind each place

No two places of an image lie in one tile, so images alone stream through the matrix unit, and for each place and each
element of a window that meets no hole a tile of the kernel is brought there first:

    32 * 32 places * 9 / 4 elements      each takes as long as 64 of the rows of which a whole tile of 128 takes 128;
                                         8 images would be 8

Found with libtpu 0.0.51 on v3 and v5e, 74 programs each of 1 to 256 images, 16 to 256 features, windows of 1 to 8,
strides of 1 to 16 along one to three dims (`python -m experiments.strided_gradients`). Images that fill lanes stream
through as those of any convolution do, and where the window has more places than the images the two are swapped
(`swapped_windows.py`).
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel


@kernel
def spread_work(inner: float, columns: float, images: float, tile: tuple[int, int, int]) -> float:
    """The work of a convolution of images with holes between their places over its multiply-adds."""
    padded = _whole(columns, tile[1]) * _whole(inner, tile[2])
    return padded * spread_rows(inner, columns, images, tile)


@kernel
def spread_rows(inner: float, columns: float, images: float, tile: tuple[int, int, int]) -> float:
    """Rows in whose time a tile is brought into the matrix unit and the images stream through it, over the images."""
    longest = float(min(tile[1], tile[2]))
    shorter = min(inner, columns, longest)
    return max(tile[0] * shorter / longest, images) / images if images > 0 else 1.0


@kernel
def _whole(size: float, tile: int) -> float:
    """The places of whole tiles over those of a dim."""
    return float(np.ceil(size / tile) * tile / size) if size > 0 else 1.0
