"""The share that a product or a convolution fills of its tiles in the matrix unit.

    [256, 147] . [147, 64]      tiles of 128 x 128: 147 of two tiles of 128, 64 of one: 0.57 x 0.5 of them is filled

Of convolutions in groups it is in `grouped_tiles.py`.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.ops.traits import FEW_FEATURES

LANES, SUBLANES = 128, 8


@kernel
def share_filled(
    inner: float,
    columns: float,
    images: float,
    taps: int,
    in_rows: bool,
    inner_last: bool,
    is_conv: bool,
    tile: tuple[int, int, int],
) -> float:
    """The share of its tiles that a product fills; 0 stands for dims that there are not.

    inner       elements summed over, or (`in_rows`) rows of the gradient of a kernel
    taps        neighbours that lie beside each other where they fit; 0: each place of a window has a tile of its own
    inner_last  the right operand's last dim is summed over
    images      of a convolution; whole tiles of them lie along the lanes, so that features are rows, and taps lie
                together

    Images along the lanes were found with libtpu 0.0.51 on v2, v3, v4 and v5e, 128 to 256 of them with 64 to 256
    features: 20 windows of 3 x 3, forward and backward. Fewer rows than a tile's take as long.
    """
    share = _fills(columns, tile[1], 1, is_conv)
    along_rows = in_rows or _along_rows(inner, columns, inner_last)
    beside = _taps(inner, taps, along_rows, tile) if taps > 0 else 0
    share *= 1.0 / tile[2] if taps == 0 else _fills(inner, tile[2], beside, is_conv)
    if not is_conv or taps == 0 or images < tile[1]:
        return share
    if in_rows:
        return _fills(columns, tile[1], 1, True)
    rows = min(1.0, columns / tile[0])
    return max(share, rows * _fills(images, tile[1], 1, True) * _fills(inner, tile[2], taps, True))


@kernel
def _along_rows(inner: float, columns: float, inner_last: bool) -> bool:
    """True where what is summed over lies along the rows of the kernel: where that, or the order of dims, pads less."""
    rows = np.ceil(columns / LANES) * LANES * np.ceil(inner / SUBLANES) * SUBLANES
    lanes = np.ceil(inner / LANES) * LANES * np.ceil(columns / SUBLANES) * SUBLANES
    return bool(rows < lanes or (rows == lanes and not inner_last))


@kernel
def _taps(inner: float, taps: int, along_rows: bool, tile: tuple[int, int, int]) -> int:
    """The neighbours that lie beside each other: those of few features; and where what is summed over lies along the
    rows of the kernel those that fit, those of more than a tile, and those of half a tile at most, but for `narrow`
    columns of images that are cut.

    Three of 160 take 4 tiles of 128, not 6, and three of 64 take 2, not 3, unless bf16 is read as it is (6.1 for a
    window of 3 x 3 on v5e, 4.8 on v3; of 80 features 6.4 and 8.5). The gradient of the input of 64 features takes all 9
    tiles of such a window where 64 or more were made, and 6 where 32 were.
    """
    if inner < FEW_FEATURES:
        return taps
    wide = inner > tile[2] or tile[2] >= 2 * inner
    return taps if along_rows and (inner * taps <= tile[2] or wide) else 1


@kernel
def _fills(size: float, tile: int, taps: int, to_the_last: bool) -> float:
    """The share of tiles that elements and taps fill along one dim; of longer dims all, unless `to_the_last`."""
    if size == 0:
        return 1.0
    size *= taps
    tiles = max(1.0, np.ceil(size / tile)) if to_the_last or size < tile else size / tile
    return float(size / (tiles * tile))
