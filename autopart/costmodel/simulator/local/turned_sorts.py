"""Copies around a sort along the lanes: the compiler turns the array so that rows to sort lie across them.

    %s = sort %x[16384,1024], along 1     %x is turned, positions are made that way, %s is turned back
    %k = top_k %x, 32                     the same, all of the row is sorted
    %s = sort %x, along 0                 nothing is turned

Found with libtpu 0.0.51 on v5e: 8 to 17 million numbers in rows of 256 to 16,384, sorts and top_k. Rows shorter than
the lanes, and the few largest of 4,096 numbers or more, are not turned. What the sort itself takes nobody has measured:
the compiler's text has no cycles for it. It counts as what it reads and writes, once.
"""

# pyright: reportArgumentType=false
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import CARRIED_SHARE

BYTES_ON_CHIP, BYTES = 8.0, 24.0
"""Bytes of each number at HBM's rate that the copies take: where rows and their positions fit the chip; where not."""

POSITION_BYTES = 4.0


@kernel
def sort_copies(elements: float, in_bytes: float, on_chip_bytes: float) -> float:
    """Bytes that pass at HBM's rate beside a sort along the lanes of so many elements, which have so many bytes."""
    fits = in_bytes + POSITION_BYTES * elements <= CARRIED_SHARE * on_chip_bytes
    return elements * (BYTES_ON_CHIP if fits else BYTES)
