"""One exchange for all stretches of a value that reach into the neighbours' tiles: the widest of them.

    %a reads rows -1 to T - 1 of %x, %b rows 1 to T + 1, %c rows 2 to T + 2       a stencil of five points, a tile of T
    -> rows -1 to T + 2 are exchanged once; %a, %b and %c read T + 1 rows of them, T and T

Where a use reads stretches of two dims, those of one dim are parts of it: corners come with rows and columns.

A shift by rows from the other end of the dim, as over a periodic border, is shared with others of that end.
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain int in a kernel)
from __future__ import annotations

from functools import lru_cache

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.core.stretch import Stretch
from autopart.core.table.mapping_table import MappingTable
from autopart.spmd.lowering.read_stretches import BITS, SHARED, SHARED_BITS

_MASK = (1 << BITS) - 1

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
    and 1 at the other end, 3 near of one that wraps; 2 for one that is not shared."""
    rows = []
    for dim, stretch in stretches:
        begin, end = -stretch.low, stretch.reach - stretch.low
        side = 2
        is_window = stretch.stride == stretch.dilation == stretch.times == 1 and not stretch.order
        if is_window and stretch.rows > 4 * MOST_APART:
            far = [max(abs(begin - by), abs(end - by)) <= MOST_APART for by in (0, stretch.rows, -stretch.rows)]
            side = [0, 1, -1][far.index(True)] if True in far else 2
            side = (3 if side == 0 else 2) if stretch.wraps else side
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
    """Writes to `sent`, in which is what `stretch` has. A value is gone through once for each kind of its stretches, of
    two dims before one."""
    for value in range(user_ptr.shape[0] - 1):
        first, last = user_ptr[value], user_ptr[value + 1]
        for i in range(first, last):
            if _may_share(ends, stretch[user[i]]):
                sent[user[i]] = 0
        for dims in (2, 1):
            for i in range(first, last):
                use = user[i]
                if stretch[use] != 0 and sent[use] == 0 and (stretch[use] >> BITS > 0) == (dims == 2):
                    _share_with(user, i, last, first, required, stretch, ends, sent)


@kernel
def _share_with(
    user: np.ndarray,
    at: int,
    last: int,
    first: int,
    required: np.ndarray,
    stretch: np.ndarray,
    ends: np.ndarray,
    sent: np.ndarray,
) -> None:
    """Finds what goes with the use at a place among those of its value, and writes one stretch for all."""
    number = stretch[user[at]]
    outer, inner = number >> BITS, number & _MASK
    outer_first, outer_last, inner_first, inner_last = outer, outer, inner, inner
    for begin in range(2):
        for j in range(first, last):
            use = user[j]
            if sent[use] != 0 or stretch[use] == 0 or required[use] != required[user[at]]:
                continue
            its_outer, its_inner = _its(ends, stretch[use], outer, inner)
            if its_outer + its_inner == 0:
                continue
            has_middle = (outer == 0 or its_outer > 0 or _has_middle(ends, outer_first, outer_last)) and (
                its_inner > 0 or _has_middle(ends, inner_first, inner_last)
            )
            if begin == 0 and (stretch[use] >> BITS > 0) == (outer > 0):
                outer_first, outer_last = _widened(ends, outer_first, outer_last, its_outer)
                inner_first, inner_last = _widened(ends, inner_first, inner_last, its_inner)
            inside = _is_inside(ends, outer_first, outer_last, its_outer)
            if begin == 1 and has_middle and inside and _is_inside(ends, inner_first, inner_last, its_inner):
                sent[use] = _packed(outer_first, outer_last, inner_first, inner_last)


@kernel
def _may_share(ends: np.ndarray, number: int) -> bool:
    """True for a stretch of one dim or two, each on a side from which others may come too."""
    if number == 0 or number >= 1 << 2 * BITS:
        return False
    for one in (number & _MASK, number >> BITS):
        if one >= 1 << SHARED_BITS or (one > 0 and ends[one - 1, 4] == 2):
            return False
    return True


@kernel
def _its(ends: np.ndarray, number: int, outer: int, inner: int) -> tuple[int, int]:
    """(outer, inner) numbers of a stretch in dims of another, 0 where it has the tile; (0, 0) if it does not go with
    that."""
    a, b = number >> BITS, number & _MASK
    if a > 0:
        return (a, b) if outer > 0 and _alike(ends, a, outer) and _alike(ends, b, inner) else (0, 0)
    if _alike(ends, b, inner):
        return (0, b)
    return (b, 0) if outer > 0 and _alike(ends, b, outer) else (0, 0)


@kernel
def _alike(ends: np.ndarray, a: int, b: int) -> bool:
    """True for numbers of stretches of as many rows of one dim, on one side."""
    return ends[a - 1, 0] == ends[b - 1, 0] and ends[a - 1, 1] == ends[b - 1, 1] and ends[a - 1, 4] == ends[b - 1, 4]


@kernel
def _has_middle(ends: np.ndarray, first: int, last: int) -> bool:
    """True if what lies from where one begins to where another ends has the tile itself."""
    return ends[first - 1, 2] <= 0 and ends[last - 1, 3] >= 1


@kernel
def _widened(ends: np.ndarray, first: int, last: int, number: int) -> tuple[int, int]:
    """The numbers of where it begins and ends, with another; 0 for none."""
    if number > 0 and ends[number - 1, 2] < ends[first - 1, 2]:
        first = number
    if number > 0 and ends[number - 1, 3] > ends[last - 1, 3]:
        last = number
    return first, last


@kernel
def _is_inside(ends: np.ndarray, first: int, last: int, number: int) -> bool:
    """True if another lies between."""
    return number == 0 or (ends[first - 1, 2] <= ends[number - 1, 2] and ends[number - 1, 3] <= ends[last - 1, 3])


@kernel
def _packed(outer_first: int, outer_last: int, inner_first: int, inner_last: int) -> int:
    """One stretch of one dim or two; as it is where it is one number each."""
    if outer_first == outer_last and inner_first == inner_last:
        return outer_first << BITS | inner_first
    outer = outer_first << SHARED_BITS | outer_last
    return SHARED | outer << 2 * SHARED_BITS | inner_first << SHARED_BITS | inner_last
