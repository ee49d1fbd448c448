"""Room at many places, and what is asked for first: the tree and the heap against plain arrays."""

from __future__ import annotations

import numpy as np
import pytest

from autopart.costmodel.compiled.memory_space_assignment.max_heap import put_in_order, take_first
from autopart.costmodel.compiled.memory_space_assignment.segment_tree import IntervalRoom, clear, most_taken, take


@pytest.mark.parametrize("places", [1, 2, 3, 7, 8, 9, 64, 1000])
def test_the_tree_says_what_an_array_says(places):
    random, room, plain = np.random.default_rng(places), IntervalRoom.empty(places, np.empty), np.zeros(places)
    clear(room)
    for _ in range(300):
        first, last = sorted(random.integers(places, size=2).tolist())
        assert most_taken(room, first, last) == pytest.approx(plain[first : last + 1].max(), abs=1e-9)
        size = float(random.integers(1, 100))
        take(room, first, last, size)
        plain[first : last + 1] += size


def test_a_cleared_tree_is_empty():
    room = IntervalRoom.empty(5, np.empty)
    clear(room)
    take(room, 0, 4, 3.0)
    clear(room)
    assert most_taken(room, 0, 4) == 0.0


@pytest.mark.parametrize("length", [0, 1, 2, 5, 100])
def test_what_is_worth_most_comes_first_and_of_equals_the_lowest(length):
    worth = np.random.default_rng(length).integers(0, 10, 200).astype(np.float64)
    queue = np.random.default_rng(1).permutation(200)[:length].astype(np.int32)
    asked = sorted(queue.tolist(), key=lambda entry: (-worth[entry], entry))
    put_in_order(queue, length, worth)
    assert [take_first(queue, left, worth) for left in range(length, 0, -1)] == asked
