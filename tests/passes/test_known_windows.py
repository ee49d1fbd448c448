"""Are windows at known places read and written in tiles, with the same numbers?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from tests.prompt import every, slow

MESH = ap.Mesh({"a": 2, "b": 4})
R = np.random.default_rng(0)
X = R.normal(size=(16, 32)).astype("f4")
TILED = [ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"x": 1}, axis="b")]


def _mean(x: jax.Array) -> jax.Array:
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def _smoothed(x: jax.Array) -> jax.Array:
    return x.at[1:-1, 1:-1].set(_mean(x))


WRITTEN: dict[str, Callable[[jax.Array], jax.Array]] = {
    "set": _smoothed,
    "added": lambda x: x.at[1:-1, 1:-1].add(0.1 * _mean(x)),
    "multiplied": lambda x: x.at[1:-1, 1:-1].mul(_mean(x)),
    "the larger": lambda x: x.at[1:-1, 1:-1].max(_mean(x)),
    "one dim": lambda x: x.at[1:-1].set(x[2:] - x[:-2]),
    "twice": lambda x: _smoothed(_smoothed(x)),
    "in a loop": lambda x: lax.fori_loop(0, 3, lambda i, x: _smoothed(x), x),
    "padded in two dims": lambda x: jnp.pad(_mean(x), 1, constant_values=1.5),
    "an update at constants": lambda x: lax.dynamic_update_slice(x, _mean(x), (1, 1)),
    "an update that is clamped": lambda x: lax.dynamic_update_slice(x, _mean(x), (5, 1)),
}
LEFT: dict[str, Callable[[jax.Array], jax.Array]] = {
    "a window that does not fit": lambda x: x.at[jnp.array([5])].set(2.0) + lax.dynamic_update_slice(x, x[:8], (8, 0)),
    "integers": lambda x: (x * 8).astype(int).at[1:-1, 1:-1].add(1),
    "flags": lambda x: (x > 0).at[1:-1, 1:-1].set(False),
    "a row": lambda x: x.at[0].set(1.0).at[:, -1].set(x[:, 0]),
}


@pytest.mark.parametrize("name", every(2, [*WRITTEN, *LEFT]))
def test_the_numbers_are_the_same(name: str):
    fun = (WRITTEN | LEFT)[name]
    np.testing.assert_allclose(ap.jit(fun, MESH, TILED)(X), jax.jit(fun)(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", WRITTEN)
def test_tiles_of_the_window_stay_tiles(name: str):
    fun, large = WRITTEN[name], jax.ShapeDtypeStruct((2048, 2048), np.float32)
    low = ap.jit(fun, ap.Mesh(MESH.shape, device="tpu_v3"), TILED).lower(large)
    moved = {kind for kind, count in low.program.collectives().items() if count}
    assert moved == {"all_permute"}, low.metadata.gathered
    assert min(low.metadata.flop_divided.values()) > 0.99


@pytest.mark.parametrize("name", ["set", slow("added"), slow("twice"), "in a loop", slow("padded in two dims")])
def test_gradients_too(name: str):
    fun = jax.grad(lambda x: jnp.sum(jnp.sin(WRITTEN[name](x))))
    np.testing.assert_allclose(ap.jit(fun, MESH, TILED)(X), jax.jit(fun)(X), rtol=1e-5, atol=1e-5)
    low = ap.jit(fun, ap.Mesh(MESH.shape, device="tpu_v3"), TILED).lower(jax.ShapeDtypeStruct((2048, 2048), np.float32))
    assert low.program.collectives()["all_gather"] == 0, low.metadata.gathered


def test_what_replaced_an_operand_is_read():
    """Of two scatters in a row neither is left behind."""
    low = ap.jit(WRITTEN["twice"], MESH, TILED).lower(X)
    assert "scatter" not in {spec.kind for spec in low.traced.program.specs}


def test_the_zero_of_a_sum_keeps_its_sign():
    x = np.full((16, 32), -0.0, "f4")
    fun = WRITTEN["added"]
    assert np.array_equal(np.signbit(ap.jit(fun, MESH, TILED)(x)), np.signbit(jax.jit(fun)(x)))
