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


@pytest.mark.parametrize("order", [ORDER, np.argsort(ORDER)], ids=["there", "back"])
def test_blocks_in_pairs_move_as_pieces_of_tiles(order: np.ndarray):
    x = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)
    moved = ap.jit(lambda x: pairs(x, order), ap.Mesh({"a": 8}, device="h100"), ROWS).lower(x).estimate.collectives
    assert {kind for kind, c in moved.items() if c.count} == {"all_permute"}
    assert sum(c.bytes for c in moved.values()) <= 3 * 4096 * 1024 * 4 / 8
