"""The stretch of an operand that one iteration of a loop reads, where that is not a tile of it.

    y = x[2:6], two iterations        y    |  0   1  |  2   3  |
                                      x    0   1 | 2   3 | 4   5       iteration p reads x[2 + 2p : 4 + 2p]

    windows of 3, stride 1, padded    y    | 0  1  2  3 | 4  5  6  7 |
                                      x      0  1  2  3   4  5  6  7   iteration p reads x[4p - 1 : 4p + 5]

Elements before the first and after the last are zeros. Along a dim that is dilated, place `dilation * k` holds element
k and all others hold nothing. So slices, padding, concatenation, windows and their gradients read by one rule: row r of
the loop reads the places from `stride * r - low` to `stride * r - low + reach - 1`.

    x[12] as 2 steps of 6, two iterations of rows     x    | 0 1 2 | 3 4 5 | 6 7 8 | 9 10 11 |
                                                           iteration 0 reads 0 1 2 and 6 7 8, iteration 1 the others

Of a dim that is split, rows of all steps are read: `times` stretches, each `apart` elements behind the one before.

    x[[0, 7, 1, 6, ..]], two iterations     iteration 0 reads 0 7 1 6, iteration 1 the others

Of elements in any `order`, an iteration reads its share of the list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """What rows of a loop read of a dim.

    rows      how many there are; a loop in n iterations has rows / n in each
    low       places before the first element that row 0 begins at; negative, behind it
    stride    how many places a row begins behind the one before; negative where the dim is read backwards
    reach     places that a row reads
    dilation  places from one element to the next
    times     how many stretches are read, one behind the other
    apart     elements from the begin of one to that of the next
    wraps     what lies before the first element is the last, and what lies behind the last is the first; of windows of
              one element, one behind the other
    order     the element that each row reads, where that is none of the above
    """

    rows: int
    low: int = 0
    stride: int = 1
    reach: int = 1
    dilation: int = 1
    times: int = 1
    apart: int = 0
    wraps: bool = False
    order: tuple[int, ...] = ()

    def first(self, ways: int, position: int) -> int:
        """The first element that iteration `position` of `ways` reads; below zero where it begins before the dim."""
        return -(-self._places(ways, position)[0] // self.dilation)

    def length(self, ways: int) -> int:
        """How many elements an iteration reads, those outside the dim included."""
        return self.times * self.piece(ways)

    def piece(self, ways: int) -> int:
        """How many of them are one stretch."""
        begin, end = self._places(ways, 0)
        return end // self.dilation + (-begin) // self.dilation + 1

    def ahead(self, ways: int) -> int:
        """Places without an element that an iteration reads before its first element."""
        return self.first(ways, 0) * self.dilation - self._places(ways, 0)[0]

    def behind(self, ways: int) -> int:
        """Places without an element that an iteration reads behind its last element."""
        begin, end = self._places(ways, 0)
        return end - begin - self.ahead(ways) - (self.piece(ways) - 1) * self.dilation

    def extent(self, size: int) -> int:
        """Into how many iterations a loop over a dim of `size` may be cut: any number that divides this.

        Rows and elements are cut evenly, and all iterations read alike, as many elements each.
        """
        elements = abs(self.rows * self.stride)
        if (
            not elements
            or not size
            or elements % self.dilation
            or (self.reach < self.dilation and abs(self.stride) > 1)
        ):
            return 1
        ways = math.gcd(self.rows, size, elements // self.dilation)
        return ways if self.piece(ways) > 0 else 1

    def _places(self, ways: int, position: int) -> tuple[int, int]:
        """The first and the last place that iteration `position` reads."""
        tile = self.rows // ways
        ends = sorted((position * tile * self.stride, ((position + 1) * tile - 1) * self.stride))
        return ends[0] - self.low, ends[1] - self.low + self.reach - 1
