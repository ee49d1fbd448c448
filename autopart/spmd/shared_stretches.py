"""One exchange for all stretches of a value that reach into the neighbours' tiles: the widest of them.

    %a reads rows -1 to T - 1 of %x, %b rows 1 to T + 1, %c rows 2 to T + 2       a stencil of five points, a tile of T
    -> rows -1 to T + 2 are exchanged once; %a, %b and %c read T + 1 rows of them, T and T

A shift by rows from the other end of the dim, as over a periodic border, is shared with others of that end.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from functools import lru_cache

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.mapping_table import MappingTable
from autopart.core.stretch import Stretch
from autopart.spmd.read_stretches import BITS, SHARED

MOST_APART = 64
"""Rows that a shared stretch may reach beyond the tile, or beyond the other end of the dim."""


def shared_stretches(
    table: MappingTable, users: tuple[np.ndarray, np.ndarray], required: np.ndarray, stretch: np.ndarray
) -> np.ndarray:
    """int64[uses]: the stretch that is exchanged for a use, packed as `stretch` has what it reads."""
    if not table.stretches:
        return stretch
    sent = stretch.copy()
    _share(users[0], users[1], required, stretch, _ends(table.stretches), sent)
    return sent


def may_share(stretches: tuple[tuple[int, Stretch], ...], number: int) -> int:
    """How many of these stretches one exchange may bring, that of a number among them."""
    ends = _ends(stretches)
    alike = (ends[:, [0, 1, 4]] == ends[number, [0, 1, 4]]).all(axis=1)
    return int(alike.sum()) if ends[number, 4] != 2 else 1


@lru_cache(maxsize=64)
def _ends(stretches: tuple[tuple[int, Stretch], ...]) -> np.ndarray:
    """int64[stretches, 5]: dim, rows, the first place and the end that row 0 reads, and the side on which: 0 near, -1
    and 1 at the other end; 2 for one that is not shared."""
    rows = []
    for dim, stretch in stretches:
        begin, end = -stretch.low, stretch.reach - stretch.low
        side = 2
        if stretch.stride == 1 and stretch.dilation == 1 and stretch.times == 1 and stretch.rows > 4 * MOST_APART:
            far = [max(abs(begin - by), abs(end - by)) <= MOST_APART for by in (0, stretch.rows, -stretch.rows)]
            side = [0, 1, -1][far.index(True)] if True in far else 2
        rows.append((dim, stretch.rows, begin, end, side))
    return np.array(rows, np.int64)


@kernel
def _share(
    user_ptr: np.ndarray,
    user: np.ndarray,
    required: np.ndarray,
    stretch: np.ndarray,
    ends: np.ndarray,
    sent: np.ndarray,
) -> None:
    """Writes to `sent`, in which is what `stretch` has. A value is gone through once for each kind of its stretches."""
    for value in range(user_ptr.shape[0] - 1):
        for i in range(user_ptr[value], user_ptr[value + 1]):
            use = user[i]
            number = stretch[use]
            if 0 < number < 1 << BITS and ends[number - 1, 4] != 2:
                sent[use] = 0
        for i in range(user_ptr[value], user_ptr[value + 1]):
            use = user[i]
            if stretch[use] == 0 or sent[use] != 0:
                continue
            first = last = number = stretch[use]
            for j in range(i + 1, user_ptr[value + 1]):
                other = stretch[user[j]]
                if _goes_with(required, ends, sent, use, user[j], number, other):
                    if ends[other - 1, 2] < ends[first - 1, 2]:
                        first = other
                    if ends[other - 1, 3] > ends[last - 1, 3]:
                        last = other
            made = number
            if first != last:
                made = SHARED | first << BITS | last
            elif first != number:
                made = first
            for j in range(i + 1, user_ptr[value + 1]):
                if _goes_with(required, ends, sent, use, user[j], number, stretch[user[j]]):
                    sent[user[j]] = made
            sent[use] = made


@kernel
def _goes_with(
    required: np.ndarray, ends: np.ndarray, sent: np.ndarray, use: int, other: int, number: int, its: int
) -> bool:
    """True if two uses of a value may share: the other has no stretch yet, and reads as many rows on the same side."""
    if its == 0 or sent[other] != 0 or required[other] != required[use]:
        return False
    a, b = number - 1, its - 1
    return ends[a, 0] == ends[b, 0] and ends[a, 1] == ends[b, 1] and ends[a, 4] == ends[b, 4]
