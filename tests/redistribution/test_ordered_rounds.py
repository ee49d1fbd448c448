"""Are elements in any order sent in as few rounds as there can be, and found where they are said to be?"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from autopart.spmd.redistribution.ordered_rounds import ordered_rounds

CASES = [(16, 16, 8), (64, 64, 8), (64, 32, 4), (12, 24, 6), (8, 8, 1)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("size", "count", "ways"), CASES)
def test_rounds_bring_what_is_asked_for_and_are_as_many_as_the_most_messages(
    size: int, count: int, ways: int, seed: int
):
    rng = np.random.default_rng(seed)
    order = rng.permutation(size) if size == count else rng.integers(0, size, count)
    rounds, places = ordered_rounds(tuple(order.tolist()), size, ways)
    tiles = np.arange(size).reshape(ways, -1)
    held = [list(tile) for tile in tiles]
    for one in rounds:
        givers, takers = zip(*one.pairs, strict=True)
        assert len({*givers}) == len({*takers}) == len(one.pairs)
        sent = {taker: tiles[giver][list(one.taken[giver])] for giver, taker in one.pairs}
        for p in range(ways):
            held[p] += list(sent.get(p, np.full(one.length, -1)))
    np.testing.assert_array_equal([held[p][place] for p in range(ways) for place in places[p]], order)
    pairs = {(int(e) // (size // ways), row // (count // ways)) for row, e in enumerate(order)}
    messages = [pair for pair in pairs if pair[0] != pair[1]]
    degrees = [Counter(pair[end] for pair in messages) for end in (0, 1)]
    assert len(rounds) == max((n for of in degrees for n in of.values()), default=0)
