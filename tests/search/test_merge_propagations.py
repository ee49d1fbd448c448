"""Are propagations merged exactly where that leads to the same partitioning?

tile<a, 0>, propagate, tile<b, 0>, propagate    ->   tile<a, 0>, tile<b, 0>, propagate
"""

from __future__ import annotations

import itertools

import jax
import pytest

import autopart as ap
from autopart.core.table.partitioning import Action, Partitioning, Propagate, Tile
from autopart.search.contract import MESH, two_matrices
from autopart.search.merge_propagations import with_merged_propagations

F32 = jax.ShapeDtypeStruct((64, 64), "float32")


def program(fun, inputs=2):
    return ap.jit(fun, MESH).lower(*[F32] * inputs).traced.program


def apart(x, y):
    return x * 2, y + 1


def product(x, y):
    return x @ y


def tiles(program, *places: tuple[int, int, str]) -> list[Action]:
    """tile, propagate for each (argument, dim, axis)."""
    return [a for n, d, axis in places for a in (Tile(program.arguments[n], d, axis), Propagate(axis))]


def merged(program, *parts: list[Action]) -> list[Action]:
    """What comes of the parts; it leads to the state that the parts lead to, and that state is left."""
    as_given, replayed, found_in = (Partitioning(program, MESH) for _ in range(3))
    for action in itertools.chain(*parts):
        as_given.apply(action)
    actions = with_merged_propagations(found_in, parts)
    for action in actions:
        replayed.apply(action)
    assert found_in.fingerprint == replayed.fingerprint == as_given.fingerprint
    return actions


def test_tiles_that_do_not_meet_are_propagated_together():
    p = program(apart)
    x, y = p.arguments
    assert merged(p, tiles(p, (0, 0, "a"), (1, 0, "a"))) == [Tile(x, 0, "a"), Tile(y, 0, "a"), Propagate("a")]


def test_each_axis_is_propagated_once_in_the_order_of_the_first():
    p = program(apart)
    x, y = p.arguments
    found = merged(p, tiles(p, (0, 0, "b"), (1, 0, "a"), (0, 1, "a")))
    assert found == [Tile(x, 0, "b"), Tile(y, 0, "a"), Tile(x, 1, "a"), Propagate("b"), Propagate("a")]


def test_tiles_that_would_be_a_conflict_together_stay_in_turn():
    """Rows of x and columns of y: together they match two mappings of the product, in turn the first has priority."""
    p = program(product)
    actions = tiles(p, (0, 0, "a"), (1, 1, "a"))
    assert merged(p, actions) == actions


def test_a_part_is_halved_around_what_cannot_be_merged():
    p = program(lambda x, y, u, v: (x @ y, u * 2, v + 1), inputs=4)
    actions = tiles(p, (0, 0, "a"), (1, 1, "a"), (2, 0, "a"), (3, 0, "a"))
    assert merged(p, actions) == [*actions[:5], *actions[6:]]


def test_parts_are_not_merged_with_each_other():
    p = program(apart)
    first, second = tiles(p, (0, 0, "a")), tiles(p, (1, 0, "a"))
    assert merged(p, first, second) == [*first, *second]


def test_nothing_stays_nothing():
    assert merged(program(apart)) == []
    assert merged(program(apart), []) == []


PLACES = [(0, 1, "b"), (1, 0, "a"), (2, 0, "a"), (2, 1, "b")]
"""Columns of w1, rows of w2, rows and columns of x."""


def legal_in_turn(program, places) -> list[Action]:
    """The actions of those places that may still be tiled when it is their turn."""
    partitioning, actions = Partitioning(program, MESH), []
    for place in places:
        tile, propagate = tiles(program, place)
        if not partitioning.why_not_tile(tile.value, tile.dim, tile.axis):
            partitioning.apply(tile)
            partitioning.apply(propagate)
            actions += [tile, propagate]
    return actions


@pytest.mark.parametrize("order", list(itertools.permutations(PLACES)), ids=str)
def test_any_order_leads_to_the_state_it_led_to(order):
    actions = legal_in_turn(two_matrices(), order)
    found = merged(two_matrices(), actions)
    assert 4 <= len(found) <= len(actions)
    assert [a for a in found if isinstance(a, Tile)] == [a for a in actions if isinstance(a, Tile)]
