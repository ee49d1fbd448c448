"""Do lines lead from the layers of one colour to those of the others?"""

from __future__ import annotations

import numpy as np

from autopart.core.repeats.colour_lines import Lines, followed


def test_a_line_that_runs_the_other_way_numbers_layers_backwards():
    """Colour 1 is beside 0; 2 reads 1 backwards, its member i the member 3 - i; 3 stands in no line."""
    lines = Lines(*map(np.array, ([0, 0, 1, 2, 2], [2, -1, -1, -1], [2, 1, 1], [-1, -1, 1], [3, 3, 0])))
    found = followed(lines, 0)
    assert found.order.tolist() == [0, 1, 2]
    assert found.phase.tolist() == [0, 0, 1]
    assert found.number.tolist() == [0, 1, 2, -1]
    assert found.start[:3].tolist() == [0, 0, 3]
    assert found.turn[:3].tolist() == [1, 1, -1]
