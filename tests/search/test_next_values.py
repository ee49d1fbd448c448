"""Which outputs are the next values of arguments where nothing is donated?"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.search.space.next_values import next_values

MESH = ap.Mesh({"B": 4})


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def pairs(fun, *args, donate=()) -> dict[str, str]:
    """Name of an output -> name of the argument that it is the next value of."""
    program = ap.jit(fun, MESH, [], donate_argnums=donate).lower(*args).traced.program
    return {program.output_names[o]: program.argument_names[a] for o, a in next_values(program).items()}


W = {"w": f32(8, 8), "b": f32(8)}


def train(params, moments, x):
    new = jax.tree.map(lambda p, m: p - 0.1 * m * x.sum(), params, moments)
    return new, jax.tree.map(lambda m: 0.9 * m, moments), x.sum()


def test_trees_that_come_back_are_state():
    by_path = {"0/b": "params/b", "0/w": "params/w", "1/b": "moments/b", "1/w": "moments/w"}
    assert pairs(train, W, W, f32(4)) == by_path


def test_donated_trees_are_the_same_state():
    assert pairs(train, W, W, f32(4), donate=(0, 1)) == pairs(train, W, W, f32(4))


def test_state_that_is_returned_alone_has_no_number_in_front():
    def step(state, x):
        return jax.tree.map(lambda p: p - x.sum(), state)

    assert pairs(step, W, f32(4)) == {"b": "state/b", "w": "state/w"}


@pytest.mark.parametrize("kept", ["w", "b"])
def test_a_tree_that_comes_back_in_parts_is_none(kept):
    def step(params, x):
        return {kept: params[kept] - x.sum()}, x

    assert pairs(step, W, f32(4)) == {}


def test_a_tree_of_other_types_is_none():
    def step(params, x):
        return jax.tree.map(lambda p: (p - x.sum()).astype(jnp.bfloat16), params)

    assert pairs(step, W, f32(4)) == {}


def test_an_array_that_comes_back_is_data():
    assert pairs(lambda x, w: x + jnp.tanh(x @ w), f32(8, 8), f32(8, 8)) == {}


def test_a_function_of_trees_alone_has_data_and_no_state():
    assert pairs(lambda batch: jax.tree.map(lambda a: 2 * a, batch), W) == {}
