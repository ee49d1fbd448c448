"""Sets of numbers that grow together: which ops, joined two at a time, are in one.

>>> sets = DisjointSets(4)
>>> sets.join(0, 2)
>>> [sets.of(i) for i in range(4)]
[2, 1, 2, 3]
"""

from __future__ import annotations


class DisjointSets:
    """The numbers below `count`, each in a set by itself until it is joined with another."""

    def __init__(self, count: int):
        self._parent = list(range(count))

    def of(self, number: int) -> int:
        """The number that stands for the set."""
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def join(self, number: int, other: int) -> None:
        """Makes one set of two; who stood for the other's stands for both."""
        self._parent[self.of(number)] = self.of(other)
