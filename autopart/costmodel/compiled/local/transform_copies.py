"""Copies between the products of a Fourier transform, and what these products read and write.

    [b,1024] -> [b,8,128]      elements go to other lanes before the first factor and behind the second
    real, imaginary            are arrays of their own: three products read and write four of them

Where results stay on the chip the copies alone are left: of 24 transforms of 64 to 16,384 numbers, real and complex,
libtpu 0.0.51 on v5e takes as long beside the products as 15 to 50 bytes of HBM for each number; 4 to 30 where there is
one factor. On v3, where all of it passes HBM, 80 to 120 (`core/ops/rules/fourier.py` has the products). What real
numbers become is kept as long as these are, not cut to the half that a program reads: Hyena holds six f32[4,512,2048]
on a v5e where it reads `complex64[4,512,1025]`.
"""

# pyright: reportArgumentType=false
from __future__ import annotations

from autopart.base.jit.kernels import kernel

BYTES_ON_CHIP = 16.0
"""Each time that a number is copied, real or complex, as bytes at HBM's rate."""

BYTES = 80.0
"""Of each number, without memory on the chip: what the products read and write, too."""


@kernel
def transform_copies(points: float, copies: float, on_chip_bytes: float) -> float:
    """Bytes that pass at HBM's rate beside the products of a transform of `points` numbers."""
    return points * (BYTES_ON_CHIP * copies if on_chip_bytes > 0 else BYTES)
