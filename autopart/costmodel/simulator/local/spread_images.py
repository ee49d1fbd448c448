"""Convolutions of images with holes between their places: the gradients of the inputs of convolutions with strides.

    %dx = convolution %dy, %w      f32[8,16,16,64] -> f32[8,32,32,64], windows of 3 x 3, a hole behind each place

No two places of an image lie in one tile, so images alone stream through the matrix unit, and for each place and each
element of a window that meets no hole a tile of the kernel is brought there first:

    32 * 32 places * 9 / 4 elements      each takes as long as 64 of the rows of which a whole tile of 128 takes 128;
                                         8 images would be 8

Up to 16 places for each one. Of wider spreads (an image of 4 x 4 to one of 32 x 32) the compiler skips fewer of the
holes. Found with libtpu 0.0.51 on v3 and v5e, 70 programs each of 1 to 256 images, 16 to 256 features, windows of 1 to
8, strides of 1 to 16 along one to three dims (`python -m experiments.strided_gradients`). Images that fill the lanes
stream through as those of any convolution do.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel

SKIPPED = 16
"""Holes are skipped where an image is spread over up to so many times its places; else one tile of so many meets none."""

WALKED = 8.0
"""Each hole along the last dim, too, takes as long as so many tiles; not on chips that cut but one image."""

WHOLE_ROWS = 8
"""Fewer images take as long as a whole tile of the kernel; not on chips that cut but one image."""


@kernel
def spread_work(
    inner: float, columns: float, images: float, apart: int, holes: int, tile: tuple[int, int, int], cut_images: int
) -> float:
    """The work of a convolution of images that are spread over `apart` times their places, over its multiply-adds.

    holes       one place and the holes behind it along the last dim
    cut_images  as in `Lowered`
    """
    padded = _whole(columns, tile[1]) * _whole(inner, tile[2])
    return padded * spread_rows(inner, columns, images, apart, holes, tile, cut_images)


@kernel
def spread_rows(
    inner: float, columns: float, images: float, apart: int, holes: int, tile: tuple[int, int, int], cut_images: int
) -> float:
    """Rows in whose time a tile is brought into the matrix unit and the images stream through it, over the images."""
    longest = float(min(tile[1], tile[2]))
    shorter, is_later = min(inner, columns, longest), cut_images > 1
    if apart > SKIPPED:
        shorter *= SKIPPED + (WALKED * holes if is_later else 0.0)
    elif images < WHOLE_ROWS and is_later:
        shorter = longest
    return max(tile[0] * shorter / longest, images) / images if images > 0 else 1.0


@kernel
def _whole(size: float, tile: int) -> float:
    """The places of whole tiles over those of a dim."""
    return float(np.ceil(size / tile) * tile / size) if size > 0 else 1.0
