"""Do the rounds of a stretch bring every device what it reads, one piece from and to a device at a time?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autopart.core.stretch import Stretch
from autopart.spmd.redistribution import AlphaBeta, DistributedType, plan
from autopart.spmd.redistribution.rounds import rounds_of
from autopart.spmd.redistribution.stretch_step import with_stretches

CASES = [
    (stretch, size, ways)
    for rows, size in itertools.product((4, 8, 12, 24), (4, 8, 12, 24))
    for low, stride, reach, dilation in (
        (0, 1, 1, 1), (1, 1, 1, 1), (-3, 1, 1, 1), (-4, 1, 2, 1), (2, 1, 5, 1), (0, 2, 3, 1), (1, 3, 1, 1),
        (2, 1, 3, 2), (0, 2, 4, 2), (1 - rows, -1, 1, 1), (-11, -2, 3, 1), (9, 1, 1, 1),
    )
    for stretch in (Stretch(rows, low, stride, reach, dilation),)
    for ways in (2, 3, 4, 8)
    if stretch.extent(size) % ways == 0
]  # fmt: skip


@pytest.mark.parametrize("chunk", range(4))
def test_each_device_is_sent_what_it_reads(chunk: int):
    assert len(CASES) > 150
    for stretch, size, ways in CASES[chunk::4]:
        tiles = np.split(np.arange(1, size + 1), ways)
        length = stretch.length(ways)
        held = np.zeros((ways, length), np.int64)
        for one in rounds_of(stretch, size, ways):
            givers, takers = zip(*one.pairs, strict=True)
            assert len(set(givers)) == len(set(takers)) == len(one.pairs)
            for giver, taker in one.pairs:
                piece = tiles[giver][one.taken[giver] : one.taken[giver] + one.length]
                assert len(piece) == one.length
                for i, element in enumerate(piece.tolist()):
                    if 0 <= one.put[taker] + i < length:
                        held[taker, one.put[taker] + i] = element
            assert all(one.put[p] == -one.length for p in range(ways) if p not in takers)
        for position in range(ways):
            first = stretch.first(ways, position)
            expected = [e + 1 if 0 <= e < size else 0 for e in range(first, first + length)]
            assert held[position].tolist() == expected, (stretch, size, ways, position)


def test_rows_read_the_places_that_they_say():
    for stretch, size, ways in CASES:
        tile = stretch.rows // ways
        for position in range(ways):
            rows = range(position * tile, (position + 1) * tile)
            places = {row * stretch.stride - stretch.low + i for row in rows for i in range(stretch.reach)}
            elements = [p // stretch.dilation for p in sorted(places) if p % stretch.dilation == 0]
            assert stretch.first(ways, position) == -(-min(places) // stretch.dilation), (stretch, size)
            assert stretch.length(ways) >= len(elements)
            first, length = stretch.first(ways, position), stretch.length(ways)
            assert {*elements} <= {*range(first, first + length)}
            assert first * stretch.dilation - stretch.ahead(ways) == min(places)
            assert (first + length - 1) * stretch.dilation + stretch.behind(ways) == max(places)


@pytest.mark.parametrize("times", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("ways", [2, 3, 4, 8])
def test_rows_of_all_steps_come_in_as_many_rounds_as_there_are_steps_and_a_tile_in_all(times: int, ways: int):
    stretch = Stretch(2 * ways, times=times, apart=2 * ways)
    size = times * 2 * ways
    tiles = np.split(np.arange(size), ways)
    held = np.full((ways, stretch.length(ways)), -1)
    rounds = rounds_of(stretch, size, ways)
    assert len(rounds) == times
    assert sum(one.length for one in rounds) == size // ways
    for one in rounds:
        assert sorted(g for g, _ in one.pairs) == sorted(t for _, t in one.pairs) == list(range(ways))
        for giver, taker in one.pairs:
            piece = tiles[giver][one.taken[giver] : one.taken[giver] + one.length]
            held[taker, one.put[taker] : one.put[taker] + one.length] = piece
    rows = np.arange(size).reshape(times, ways, 2)
    assert (held == rows.transpose(1, 0, 2).reshape(ways, -1)).all()


def test_a_shift_is_one_permute_and_a_halo_two():
    assert [one.length for one in rounds_of(Stretch(8, -1), 8, 4) if one.moves] == [1]
    assert [one.length for one in rounds_of(Stretch(8, 1, 1, 3), 8, 4) if one.moves] == [1, 1]


def test_a_reversed_dim_is_one_permute_of_whole_tiles():
    (one,) = rounds_of(Stretch(8, -7, -1), 8, 4)
    assert sorted(one.pairs) == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert (one.length, one.put) == (2, (0, 0, 0, 0))


MESH = {"x": 4, "y": 2}


SLOW_TO_START = AlphaBeta({"x": 1.0, "y": 1.0}, {"x": 1e6, "y": 1e6})


def planned(source: str, stretch: Stretch, cost: str | AlphaBeta = "elements"):
    start, target = DistributedType.parse(source, MESH), DistributedType.parse("[16{x}64, 8]", MESH)
    return with_stretches(lambda there: plan(start, there, cost=cost), target, [(0, stretch)], 4, cost, None)


def test_pieces_move_where_they_are_fewer_than_the_whole():
    steps = planned("[16{x}64, 8]", Stretch(64, 1, 1, 3)).steps
    assert [(step.kind, step.collectives, step.left_shape) for step in steps] == [("all_permute", 2, (18, 8))]


def test_a_dim_that_is_whole_is_sliced_and_nothing_moves():
    steps = planned("[64, 8]", Stretch(64, 1, 1, 3)).steps
    assert [(step.kind, step.left_shape) for step in steps] == [("all_slice", (18, 8))]


def test_pieces_that_cost_more_than_the_whole_are_gathered_instead():
    few = Stretch(4, -8)
    assert [(step.kind, step.collectives) for step in planned("[16{x}64, 8]", few).steps] == [("all_permute", 3)]
    steps = planned("[16{x}64, 8]", few, SLOW_TO_START).steps
    assert [step.kind for step in steps] == ["all_gather", "all_slice"]
    assert steps[-1].left_shape == (1, 8)
