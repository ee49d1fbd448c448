"""How much is taken of a room at each of many places, and the most of it between any two.

    take(room, 3, 9, 16e6)         16 MB from place 3 to place 9
    most_taken(room, 5, 20)        the most that is taken at one of the places 5 to 20

A tree of maxima: node p stands for the places of nodes 2p and 2p + 1. Both take as many turns as the tree is deep.
"""

# pyright: reportReturnType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.compiled.arena import Empty


class IntervalRoom(NamedTuple):
    """A tree over places: the leaf of place i is node leaves + 1 + i, `leaves` half the length of the arrays.

    most[p]    the most that is taken at one of the places of node p, but for what its ancestors say
    throughout[p]   what is taken at all places of node p, and of no node above it as a whole
    """

    most: np.ndarray
    throughout: np.ndarray

    @staticmethod
    def empty(places: int, empty: Empty) -> IntervalRoom:
        """Room for so many places."""
        leaves = 1 << (places + 1).bit_length()
        return IntervalRoom(empty(2 * leaves), empty(2 * leaves))


@kernel
def clear(room: IntervalRoom) -> None:
    """Nothing is taken anywhere."""
    for p in range(room.most.shape[0]):
        room.most[p] = room.throughout[p] = 0.0


@kernel
def take(room: IntervalRoom, first: int, last: int, size: float) -> None:
    """Takes `size` at all places from first to last."""
    leaves = room.most.shape[0] // 2
    left, right = leaves + first, leaves + last + 2
    while left ^ right != 1:
        if left & 1 == 0:
            room.most[left ^ 1] += size
            room.throughout[left ^ 1] += size
        if right & 1:
            room.most[right ^ 1] += size
            room.throughout[right ^ 1] += size
        left, right = left >> 1, right >> 1
        room.most[left] = max(room.most[2 * left], room.most[2 * left + 1]) + room.throughout[left]
        room.most[right] = max(room.most[2 * right], room.most[2 * right + 1]) + room.throughout[right]
    while left > 1:
        left >>= 1
        room.most[left] = max(room.most[2 * left], room.most[2 * left + 1]) + room.throughout[left]


@kernel
def most_taken(room: IntervalRoom, first: int, last: int) -> float:
    """The most that is taken at one of the places from first to last."""
    leaves = room.most.shape[0] // 2
    left, right, of_left, of_right = leaves + first, leaves + last + 2, -np.inf, -np.inf
    while left ^ right != 1:
        if left & 1 == 0:
            of_left = max(of_left, room.most[left ^ 1])
        if right & 1:
            of_right = max(of_right, room.most[right ^ 1])
        left, right = left >> 1, right >> 1
        of_left += room.throughout[left]
        of_right += room.throughout[right]
    most = max(of_left, of_right)
    while left > 1:
        left >>= 1
        most += room.throughout[left]
    return most
