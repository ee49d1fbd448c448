"""Do lines lead from the layers of one colour to those of the others, and does a phase begin where most of it does?"""

from __future__ import annotations

import numpy as np

from autopart.core.colour_lines import Lines, followed, middles


def test_a_line_that_runs_the_other_way_numbers_layers_backwards():
    """Colour 1 is beside 0; 2 reads 1 backwards, its member i the member 3 - i; 3 stands in no line."""
    lines = Lines(*map(np.array, ([0, 0, 1, 2, 2], [2, -1, -1, -1], [2, 1, 1], [-1, -1, 1], [3, 3, 0])))
    found = followed(lines, 0)
    assert found.order.tolist() == [0, 1, 2]
    assert found.phase.tolist() == [0, 0, 1]
    assert found.number.tolist() == [0, 1, 2, -1]
    assert found.start[:3].tolist() == [0, 0, 3]
    assert found.turn[:3].tolist() == [1, 1, -1]


def test_most_chains_of_the_usual_length_say_where_a_phase_begins_else_its_middle():
    phase, least = np.array([0, 0, 0, 0, 1, 1, 2, 2]), np.array([1, 2, 2, -5, 4, 2, 3, 1])
    sizes = np.array([8, 8, 8, 9, 6, 9, 8, 8])
    assert middles(phase, least, sizes, usual=8).tolist() == [2, (2 + 11 - 8) // 2, 1]
