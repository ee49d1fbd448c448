"""Does a packed layout say what went into it?

actions  [tile 0, none, tile 0], stamps [5, 0, 2]   ->   dim 0 tiled by axis 2, then by axis 0
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autopart.core.layout import (
    ACTION_BITS,
    LAST_TILE,
    action_of,
    axes_by_dim,
    describe,
    local_elements,
    local_shape,
    pack,
    pending_axes,
)
from autopart.core.op import MAX_RANK, REDUCTION_NAMES, SUM

MAX_AXES = 8


@st.composite
def packed(draw):
    """(actions, stamps) of up to eight axes: tiles of up to 16 dims, and every reduction."""
    codes = st.sampled_from([0, *range(1, MAX_RANK + 1), *REDUCTION_NAMES])
    axes = draw(st.integers(1, MAX_AXES))
    few = draw(st.lists(codes, min_size=1, max_size=3))
    actions = draw(st.lists(st.sampled_from(few), min_size=axes, max_size=axes))
    return actions, draw(st.lists(st.integers(0, 5), min_size=axes, max_size=axes))


def layout_of(actions, stamps=None) -> int:
    stamps = list(range(len(actions))) if stamps is None else stamps
    return int(pack(np.array(actions, np.int64), np.array(stamps, np.int64)))


@settings(deadline=None)
@given(packed())
def test_every_axis_has_the_action_it_was_given(case):
    actions, stamps = case
    layout = layout_of(actions, stamps)
    assert [int(action_of(np.uint64(layout), axis)) for axis in range(len(actions))] == actions
    assert 0 <= layout < 2 ** (8 * len(actions))


@settings(deadline=None)
@given(packed())
def test_axes_of_a_dim_are_in_the_order_of_their_stamps_and_equal_stamps_in_the_order_of_axes(case):
    actions, stamps = case
    expected = [
        tuple(sorted((a for a, action in enumerate(actions) if action == dim + 1), key=lambda a: (stamps[a], a)))
        for dim in range(MAX_RANK)
    ]
    assert axes_by_dim(layout_of(actions, stamps), len(actions), MAX_RANK) == tuple(expected)


@settings(deadline=None)
@given(packed())
def test_pending_reductions_are_those_given_and_nothing_else(case):
    actions, stamps = case
    expected = tuple((a, code) for a, code in enumerate(actions) if code > LAST_TILE)
    assert pending_axes(layout_of(actions, stamps), len(actions)) == expected


@settings(deadline=None)
@given(packed(), st.integers(1, 1000))
def test_stamps_matter_by_their_order_alone(case, factor):
    """So that equal layouts are equal integers."""
    actions, stamps = case
    assert layout_of(actions, stamps) == layout_of(actions, [factor * s - 7 for s in stamps])
    in_order = sorted(range(len(actions)), key=lambda axis: (stamps[axis], axis))
    assert layout_of(actions, stamps) == layout_of(actions, [in_order.index(axis) for axis in range(len(actions))])


@settings(deadline=None)
@given(packed(), st.data())
def test_a_device_holds_each_dim_over_the_sizes_of_its_axes(case, data):
    actions, stamps = case
    sizes = tuple(data.draw(st.lists(st.integers(1, 4), min_size=len(actions), max_size=len(actions))))
    ways = [math.prod(sizes[a] for a, action in enumerate(actions) if action == d + 1) for d in range(MAX_RANK)]
    parts = data.draw(st.lists(st.integers(1, 5), min_size=MAX_RANK, max_size=MAX_RANK))
    shape = tuple(part * way for part, way in zip(parts, ways, strict=True))
    layout = layout_of(actions, stamps)
    assert local_shape(shape, layout, sizes) == tuple(parts)
    held = local_elements(np.array(shape, np.int64), np.uint64(layout), np.array(sizes, np.int64))
    assert held == pytest.approx(math.prod(parts))


def test_bits_are_as_documented():
    """f32[64,8] on {batch:4, model:2}, dim 0 tiled by batch, then model."""
    assert layout_of([1, 1]) == 0b001_00001_000_00001
    assert layout_of([1, 1], [1, 0]) == 0b000_00001_001_00001
    assert layout_of([0, SUM]) == SUM << 8
    assert layout_of([0] * MAX_AXES) == 0


def test_eight_axes_on_one_dim_have_room():
    layout = layout_of([MAX_RANK] * MAX_AXES, list(reversed(range(MAX_AXES))))
    assert axes_by_dim(layout, MAX_AXES, MAX_RANK)[MAX_RANK - 1] == tuple(reversed(range(MAX_AXES)))
    assert layout >> 8 * (MAX_AXES - 1) + ACTION_BITS == 0


def test_a_layout_is_described_with_the_names_of_axes():
    names = ("batch", "model", "stage")
    assert describe(layout_of([1, SUM, 1], [1, 0, 0]), names, 2) == "[{stage,batch},{}] sum{model}"
    assert describe(0, names, 0) == "[]"
