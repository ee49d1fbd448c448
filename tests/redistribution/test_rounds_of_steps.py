"""Do rows of any number of steps come to the devices that hold them, each device sending and receiving once a round?"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autopart.core.stretch import Stretch
from autopart.spmd.redistribution.rounds import rounds_of

ROWS = 3
"""Of a step on a device."""


@pytest.mark.parametrize(("steps", "ways"), [*product([2, 3, 4, 5, 6, 8, 9, 12, 15, 16, 24], [2, 3, 4, 6, 8, 12, 16])])
def test_every_device_ends_with_its_rows_of_all_steps(steps: int, ways: int):
    rows = ROWS * ways
    size = steps * rows
    tiles = np.arange(size).reshape(ways, -1)
    found = np.full_like(tiles, -1)
    for made in rounds_of(Stretch(rows, times=steps, apart=rows), size, ways):
        givers, takers = zip(*made.pairs, strict=True)
        assert sorted(givers) == sorted(takers) == list(range(ways))
        for giver, taker in made.pairs:
            sent = tiles[giver, made.taken[giver] : made.taken[giver] + made.length]
            found[taker, made.put[taker] : made.put[taker] + made.length] = sent
    wanted = np.arange(size).reshape(steps, ways, ROWS).swapaxes(0, 1).reshape(ways, -1)
    np.testing.assert_array_equal(found, wanted)
