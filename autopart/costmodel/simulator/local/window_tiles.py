"""Kernels that spread numbers over windows that were looked up, or sum within these, walk through their layout tiles.

    %h = gather ...                 f32[131072,2,16], in tiles of 2 x 128 (`looked_up_windows.py`)
    %m = multiply %h, %weights      a tile of 2 rows takes 14 cycles, one of 8 rows 19
    %s = reduce %h over 16          14 and 20

Found with libtpu 0.0.51 on v5e and v3, which take as many cycles: 11 to 15 where nothing but the layout changes, 13 to
20 for an exponential and a sum, 14 to 19 where a number is spread over each window, 25 where two are, and 30 for the
sum of two that were looked up and filled where indices are out of bounds.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

import numpy as np

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import Lowered, ProgramArrays
from autopart.costmodel.simulator.local.few_images import local_length
from autopart.costmodel.simulator.sizes import SHORT_BIT

TILE, ROW, SPREAD, SUM = 8.0, 0.6, 6.0, 4.0
"""A layout tile and each of its rows, once in a kernel; numbers that are spread over it, and a sum within it: each
takes as long as so many numbers that are spread along the lanes."""


@kernel
def lies_in_windows(program: ProgramArrays, lowered: Lowered, value: int, layout: int) -> bool:
    """True for what was looked up by index, in windows that fill no row of lanes on one device."""
    indices = program.values.looked_up[value]
    if not indices & SHORT_BIT:
        return indices != 0
    elements = 1.0
    for d in range(np.int64(program.values.rank[value])):
        if not indices >> d & 1:
            elements *= local_length(program, lowered, value, layout, d)
    return elements < lowered.layout_tile[1]


@kernel
def walked_windows(
    program: ProgramArrays, lowered: Lowered, value: int, layout: int, sums: bool
) -> tuple[float, float]:
    """What a kernel takes to walk through an array that was looked up, and what spreading numbers over it, or sums
    within its windows, take besides: in numbers that are spread along the lanes; zeros for any other array.

    Windows of one dim are looked up and summed in one kernel, and lie as any array does otherwise.
    """
    indices, rank = program.values.looked_up[value], np.int64(program.values.rank[value])
    rows, lanes = lowered.layout_tile
    if lanes == 1 or not lies_in_windows(program, lowered, value, layout):
        return 0.0, 0.0
    windows = elements = 1.0
    inner = 0
    for d in range(rank):
        length = local_length(program, lowered, value, layout, d)
        if indices >> d & 1:
            windows *= length
        else:
            elements *= length
            inner += length > 1.0
    if inner < 2:
        tiles = float(np.ceil(windows / rows) * np.ceil(elements / lanes)) if sums else 0.0
        return tiles * (TILE + ROW * rows), tiles * (SPREAD + SUM)
    padded, tiles, held = np.inf, 0.0, 0.0
    for a in range(rank):
        for b in range(rank):
            if a != b and not indices >> a & 1 and not indices >> b & 1:
                along = local_length(program, lowered, value, layout, a)
                across = local_length(program, lowered, value, layout, b)
                high = min(float(rows), 2.0 ** np.ceil(np.log2(across)))
                count = elements / (along * across) * np.ceil(along / lanes) * np.ceil(across / high)
                if count * high < padded:
                    padded, tiles, held = count * high, windows * count, high
    return tiles * (TILE + ROW * held), tiles * (SUM if sums else SPREAD)
