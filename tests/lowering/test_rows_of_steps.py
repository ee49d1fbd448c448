"""Are rows of a batch that is split into a loop's steps exchanged, a tile of them, however many steps there are?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

RNG = np.random.default_rng(0)
W, X = (RNG.normal(size=shape).astype(np.float32) for shape in ((16, 16), (96, 16)))
TILED = {"one axis": ({"a": 8}, "a"), "two axes": ({"a": 2, "b": 4}, ("a", "b"))}


def accumulated(steps: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        def one(total: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
            return total + jax.grad(lambda w: jnp.mean(jnp.tanh(rows @ w) ** 2))(w), None

        return w - 0.1 * jax.lax.scan(one, jnp.zeros_like(w), x.reshape(steps, -1, x.shape[-1]))[0]

    return step


@pytest.mark.parametrize("tiled", TILED)
@pytest.mark.parametrize("steps", [2, 3, 4, 6, 12])
def test_a_tile_of_rows_moves_and_no_row_is_gathered(steps: int, tiled: str):
    axes, axis = TILED[tiled]
    step, schedule = accumulated(steps), [ap.ManualPartition({"x": 0}, axis=axis)]
    got = ap.jit(step, ap.Mesh(axes), schedule)(W, X)
    np.testing.assert_allclose(got, jax.jit(step)(W, X), rtol=1e-5, atol=1e-6)
    real = (jax.ShapeDtypeStruct((256, 256), jnp.float32), jax.ShapeDtypeStruct((98304, 256), jnp.float32))
    low = ap.jit(step, ap.Mesh(axes, device="h100"), schedule).lower(*real)
    moved = {kind: c for kind, c in low.estimate.collectives.items() if c.count}
    assert moved.keys() == {"all_permute", "all_reduce"}
    assert moved["all_permute"].bytes <= 98304 * 256 * 4 / 8
    assert moved["all_reduce"].count == 1
