"""Does a phase begin where most of its layers are whole?"""

from __future__ import annotations

import numpy as np

from autopart.core.repeats.phase_starts import later_starts, middles


def moved(turn, least, sizes, usual=8):
    phase = np.zeros(len(least), np.int64)
    return later_starts(phase, np.full(len(least), turn), np.array(least), np.array(sizes), usual).tolist()


def test_most_chains_of_the_usual_length_say_where_a_phase_begins_else_its_middle():
    phase, least = np.array([0, 0, 0, 0, 1, 1, 2, 2]), np.array([1, 2, 2, -5, 4, 2, 3, 1])
    sizes = np.array([8, 8, 8, 9, 6, 9, 8, 8])
    assert middles(phase, least, sizes, usual=8).tolist() == [2, (2 + 11 - 8) // 2, 1]


def test_chains_that_begin_a_layer_late_join_the_layer_before():
    assert moved(1, [1, 1, 0, 0], [8, 8, 8, 8]) == [-1, -1, 0, 0]


def test_chains_that_begin_a_layer_early_take_the_others_along():
    assert moved(1, [0, 0, -1, -1], [8, 8, 8, 8]) == [0, 0, 1, 1]


def test_a_phase_that_runs_backwards_is_moved_the_other_way():
    assert moved(-1, [-1, -1, 0, 0], [8, 8, 8, 8]) == [1, 1, 0, 0]


def test_phases_that_lack_no_layer_or_can_gain_none_stay():
    phase = np.array([0, 0, 1, 1, 1])
    least, sizes = np.array([0, -1, 0, 1, 0]), np.array([8, 9, 8, 7, 8])
    assert later_starts(phase, np.ones(5, np.int64), least, sizes, 8).tolist() == [0] * 5
