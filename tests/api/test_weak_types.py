"""Do results have the types that those of `jax.jit` have, weak ones too?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = ap.Mesh({"batch": 8})
W = np.ones(8, "bfloat16")


def decayed(w, rate):
    return w - rate, rate * 0.9


def types(tree):
    return [(leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]


PROGRAMS = {
    "a number that is returned": (lambda w, n: (w, n), (W, 2)),
    "a product of numbers": (decayed, (W, 0.1)),
    "a sum with an array": (lambda w, n: w + n, (W, np.float32(2))),
    "a truth value": (lambda w, n: (w, n), (W, True)),
    "a constant": (lambda w: (w, jnp.asarray(1.0), 1.0), (W,)),
    "a scalar of an array": (lambda w: (w.sum(), w.shape[0]), (W,)),
    "a complex number": (lambda w, n: (w, n * 1j), (W, 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_have_the_types_of_jax_jit(name):
    fun, args = PROGRAMS[name]
    partitioned, expected = ap.jit(fun, MESH), types(jax.jit(fun)(*args))
    for _ in range(2):  # the second call does not come to Python
        assert types(partitioned(*args)) == expected
    lowered = partitioned.lower(*args)
    assert types(lowered.compile()(*args)) == expected
    assert types(lowered.interpret(*args)) == expected
    assert types(jax.jit(partitioned)(*args)) == expected


def test_a_rate_that_decays_leaves_parameters_their_type():
    step, whole = ap.jit(decayed, MESH, [ap.ManualPartition({"w": 0}, axis="batch")]), jax.jit(decayed)
    found = expected = (W, 0.1)
    for _ in range(3):
        found, expected = step(*found), whole(*expected)
        assert types(found) == types(expected)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("first", [0, 0.5, True, np.float32(1), np.float64(1)], ids=lambda x: type(x).__name__)
def test_state_that_begins_as_a_number_is_traced_once(first):
    traced = []

    def step(state):
        traced.append(state)
        return state | state if state.dtype == bool else state + 1

    state, partitioned = first, ap.jit(step, MESH)
    for _ in range(3):
        state = partitioned(state)
    assert len(traced) == 1
    assert len(partitioned._compiled) == 1
