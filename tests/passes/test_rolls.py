"""Do rolls move what comes in, once, and keep the numbers, and so do their gradients?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

X = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)
PLACES = {
    "rows": ([(0, "a")], {"a": 8}),
    "two devices": ([(0, "a")], {"a": 2}),
    "two axes": ([(0, "a"), (0, "b")], {"a": 4, "b": 2}),
    "rows and columns": ([(0, "a"), (1, "b")], {"a": 4, "b": 2}),
    "whole": ([], {"a": 8}),
}
Fun = Callable[[jax.Array], jax.Array]


def rolled(by: int) -> Fun:
    return lambda x: jnp.roll(x, by, 0) * 2 - jnp.roll(x, -by, 0)


def squared(fun: Fun) -> Fun:
    return lambda x: jax.grad(lambda x: jnp.sum(jnp.sin(fun(x)) ** 2))(x)


def in_a_loop(fun: Fun) -> Fun:
    return lambda x: jax.lax.scan(lambda x, _: (jnp.cos(fun(x)), None), x, None, length=2)[0]


@pytest.mark.parametrize("turn", [lambda fun: fun, squared, in_a_loop, jax.vmap], ids=["", "gradient", "loop", "vmap"])
@pytest.mark.parametrize("by", [1, -3, 5, 8])
@pytest.mark.parametrize("place", PLACES)
def test_rolls_are_the_same_on_devices_and_in_sequence(place: str, by: int, turn: Callable[[Fun], Fun]):
    tiles, mesh = PLACES[place]
    fun = turn(rolled(by) if turn is not jax.vmap else lambda row: jnp.roll(row, by))
    step = ap.jit(lambda x: fun(x), ap.Mesh(mesh), [ap.ManualPartition({"x": dim}, axis) for dim, axis in tiles])
    for got in (step(X), step.lower(X).interpret(X)):
        np.testing.assert_allclose(got, jax.jit(fun)(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("by", "rows"), [(1, 1), (3, 3), (512, 512), (600, 512), (2048, 512)])
@pytest.mark.parametrize("turn", [lambda fun: fun, squared], ids=["forward", "gradient"])
def test_a_roll_is_one_exchange_of_what_comes_in(by: int, rows: int, turn: Callable[[Fun], Fun]):
    fun = turn(lambda x: jnp.roll(x, by, 0))
    tiled = [ap.ManualPartition({"x": 0}, "a")]
    low = ap.jit(lambda x: fun(x), ap.Mesh({"a": 8}, device="h100"), tiled).lower(
        jax.ShapeDtypeStruct((4096, 65536), "float32")
    )
    assert low.estimate is not None
    moved = low.estimate.collectives
    assert {kind for kind, total in moved.items() if total.count} == {"all_permute"}
    assert moved["all_permute"].bytes == (2 if turn is squared else 1) * rows * 65536 * 4
