"""Do arrays without elements cost nothing: is nothing gathered for an empty slice, concatenation or pad?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 2, "b": 4})
X = np.random.default_rng(0).normal(size=(8, 16, 4)).astype("f4")
ROWS = ap.ManualPartition({"x": 0}, axis="a", name="rows")


def _running(x: jax.Array) -> jax.Array:
    """A linear recurrence along dim 1, as state space models have it."""

    def joined(one: tuple[jax.Array, jax.Array], other: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return one[0] * other[0], other[0] * one[1] + other[1]

    return lax.associative_scan(joined, (jnp.tanh(x), x), axis=1)[1]


PROGRAMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "a recurrence": _running,
    "an empty beginning": lambda x: jnp.concatenate([x[:, :0], jnp.sin(x), x[:, 16:]], 1),
    "empty beside two others": lambda x: jnp.concatenate([x[:, :0], jnp.sin(x), x], 1),
    "a pad of nothing": lambda x: jnp.pad(x[:, :0], ((0, 0), (2, 3), (0, 0)), constant_values=2) + x[:, :5],
    "arithmetic on nothing": lambda x: jnp.concatenate([jnp.sin(x[:, :0]) + x[:, 3:3], x], 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_moves_for_what_has_no_elements(name: str):
    fun = PROGRAMS[name]

    def both(x: jax.Array) -> object:
        return fun(x), jax.grad(lambda x: jnp.sum(fun(x) ** 2))(x)

    step = ap.jit(both, MESH, [ROWS])
    low = step.lower(X)
    assert not any(low.program.collectives().values()), low.metadata.gathered
    for want, got in zip(jax.tree.leaves(jax.jit(both)(X)), jax.tree.leaves(step(X)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_output_without_elements_stays_one():
    step = ap.jit(lambda x: (x[:, :0], jnp.sin(x)), MESH, [ROWS])
    assert step(X)[0].shape == (8, 0, 4)
    assert not any(step.lower(X).program.collectives().values())
