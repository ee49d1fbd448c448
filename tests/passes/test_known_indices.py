"""Do look-ups at indices that are known beforehand read what tiles hold, and come out the same?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

ROWS = [ap.ManualPartition({"x": 0}, axis="a")]
X = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
ORDER = np.array([i for d in range(8) for i in (d, 15 - d)])


def pairs(x: jax.Array, order: np.ndarray) -> jax.Array:
    return jnp.take(x.reshape(16, -1, x.shape[-1]), order, axis=0).reshape(x.shape)


FREE: dict[str, Callable[[jax.Array], jax.Array]] = {
    "nearest, doubled": lambda x: jax.image.resize(x, (2 * x.shape[0], x.shape[1]), "nearest"),
    "nearest, a third": lambda x: jax.image.resize(x, (3 * x.shape[0], x.shape[1]), "nearest"),
    "every second": lambda x: x[np.arange(0, x.shape[0], 2)],
    "neighbours exchanged": lambda x: x[np.arange(x.shape[0]) ^ 1],
    "along rows": lambda x: jnp.take_along_axis(x, jnp.broadcast_to((jnp.arange(x.shape[0]) ^ 1)[:, None], x.shape), 0),
    "windows": lambda x: x[jnp.arange(x.shape[0] // 8)[:, None] * 8 + jnp.arange(8)].sum(1),
}
MOVED: dict[str, Callable[[jax.Array], jax.Array]] = {
    "backwards": lambda x: x[np.arange(x.shape[0])[::-1].copy()],
    "the next, around": lambda x: jnp.take(x, (jnp.arange(x.shape[0]) + 1) % x.shape[0], axis=0),
    "halves": lambda x: x[np.roll(np.arange(x.shape[0]), x.shape[0] // 2)],
    "pairs of blocks": lambda x: pairs(x, ORDER),
    "back from pairs": lambda x: pairs(x, np.argsort(ORDER)),
    "any order": lambda x: x[np.random.default_rng(0).permutation(x.shape[0])],
    "one row again and again": lambda x: x[np.zeros(8, np.int32)],
    "one row along rows": lambda x: jnp.take_along_axis(x, jnp.full(x.shape, 3), 0),
    "past the end": lambda x: jnp.take(x, np.arange(4) + x.shape[0] - 2, axis=0, mode="clip"),
    "past the end, filled": lambda x: jnp.take(x, np.arange(4) + x.shape[0] - 2, axis=0, mode="fill", fill_value=7.0),
}


def squared(fun: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.grad(lambda x: jnp.sum(fun(x) ** 2))(x)


@pytest.mark.parametrize("turn", [lambda fun: fun, squared], ids=["forward", "gradient"])
@pytest.mark.parametrize("name", [*FREE, *MOVED])
def test_the_numbers_are_the_same_and_tiles_read_their_own(name: str, turn: Callable[..., Callable[..., jax.Array]]):
    fun = turn(lambda x: {**FREE, **MOVED}[name](x))
    function = ap.jit(lambda x: fun(x), ap.Mesh({"a": 8}), ROWS)
    np.testing.assert_allclose(function(X), jax.jit(fun)(X), rtol=1e-6)
    if name in FREE:
        low = ap.jit(lambda x: fun(x), ap.Mesh({"a": 8}, device="h100"), ROWS).lower(X)
        assert not any(c.count for c in low.estimate.collectives.values())


MIXED = np.random.default_rng(0).permutation(64)
KNOWN = {
    "pairs of blocks": (np.repeat(4 * ORDER, 4) + np.tile(np.arange(4), 16), 1),
    "striped": (np.arange(64).reshape(8, 8).T.reshape(-1), 1),
    "striped by 4": (np.arange(64).reshape(4, 16).T.reshape(-1), 1),
    "bits reversed": (np.array([int(f"{i:06b}"[::-1], 2) for i in range(64)]), 1),
    "tiles exchanged": (np.arange(64) ^ 8, 1),
    "any order": (MIXED, 2.5),
    "any rows": (np.random.default_rng(1).integers(0, 64, 32), 1),
}


@pytest.mark.parametrize("turn", ["there", "back", "in a loop"])
@pytest.mark.parametrize("name", KNOWN)
def test_rows_in_a_known_order_go_where_they_are_read(name: str, turn: str):
    """`most`: tiles that a device is sent, once over."""
    order, most = KNOWN[name]
    is_permutation = len(set(order.tolist())) == 64

    def fun(x: jax.Array) -> jax.Array:
        if turn == "in a loop" and is_permutation:
            return jax.lax.scan(lambda x, _: (jnp.sin(x[:, order]), None), x, None, length=2)[0]
        return x[:, np.argsort(order) if turn == "back" and is_permutation else order]

    rows, x = [ap.ManualPartition({"x": 1}, axis="a")], np.random.default_rng(0).normal(size=(2, 64, 4))
    small, step = x.astype(np.float32), ap.jit(fun, ap.Mesh({"a": 8}), rows)
    for got in (step(small), step.lower(small).interpret(small)):
        np.testing.assert_array_equal(got, jax.jit(fun)(small))
    low = ap.jit(fun, ap.Mesh({"a": 8}, device="h100"), rows).lower(jax.ShapeDtypeStruct((2, 64, 1 << 20), "float32"))
    assert low.estimate is not None
    moved = sum(c.bytes for c in low.estimate.collectives.values()) / (2 * 64 * (1 << 20) * 4 / 8)
    assert moved <= most * (2 if turn == "in a loop" and is_permutation else 1)
