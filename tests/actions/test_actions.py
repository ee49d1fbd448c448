"""Does every action survive being written down, and is what is no action refused?"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autopart as ap
from autopart.core.table.actions import (
    ACTIONS,
    Action,
    ActionError,
    Atomic,
    Propagate,
    ShareGathers,
    Tile,
    action_of,
    row_of,
    text_of,
)

NUMBERS = st.integers(0, 2**31 - 1)
FIELDS = {"value": NUMBERS, "dim": st.integers(-1, 31), "within": NUMBERS, "axis": st.text()}
ANY_ACTION = st.one_of(
    *(st.builds(kind, **{f.name: FIELDS[f.name] for f in dataclasses.fields(kind)}) for kind in ACTIONS.values())
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(list(ACTIONS)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=8,
)


def test_every_action_has_a_word():
    assert set(ACTIONS.values()) == set(get_args(Action))


@given(ANY_ACTION)
def test_action_is_what_its_row_says_also_after_json(action):
    assert action_of(json.loads(json.dumps(row_of(action)))) == action


@given(ANY_ACTION, st.permutations(range(8)))
def test_action_with_keys_is_on_the_values_that_the_keys_name(action, order):
    if isinstance(action, Tile | Atomic):
        action = dataclasses.replace(action, value=action.value % 8)
    row = row_of(action, lambda value: f"key {order[value]}")
    assert action_of(row, lambda key: order.index(int(key.removeprefix("key ")))) == action


@given(JUNK)
def test_what_is_read_as_an_action_is_what_is_written(row):
    with contextlib.suppress(ActionError):
        assert row_of(action_of(row)) == row


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (["tile", 1, 2], "[tile, value, dim, axis]"),
        (["tiled", 1, 2, "a"], "or [propagate, axis] or"),
        (["atomic", True, "a"], ""),
        (["propagate", 3], ""),
        ("tile", "begins with tile"),
        ([], ""),
    ],
    ids=str,
)
def test_the_error_says_what_a_row_is(row, hint):
    with pytest.raises(ActionError) as caught:
        action_of(row)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Tile(3, 0, "a"), "tile<x/w, 0, a>"),
        (Atomic(3, "a"), "atomic<x/w, a>"),
        (Propagate("a\nb"), "propagate<a\\nb>"),
        (ShareGathers(64), "share_gathers<64>"),
    ],
)
def test_text_is_one_line_as_the_paper_writes_it(action, text):
    assert text_of(action, {3: "x/w"}.__getitem__) == text


@pytest.mark.parametrize("row", [("tile", 3, 0, "a"), ("tile", "x", "0", "a"), ("run", "x"), ("share_gathers", "1")])
def test_code_is_not_made_of_decisions_that_are_none(row):
    metadata = ap.jit(abs, ap.Mesh({"a": 2}), [ap.SharedGathers(1)]).lower(1.0).metadata
    altered = dataclasses.replace(metadata.tactics[0], decisions=(row,))
    with pytest.raises(ActionError):
        dataclasses.replace(metadata, tactics=(altered,)).as_schedule()
