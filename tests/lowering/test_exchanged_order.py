"""Where tiles of a dim that an op needs whole go to one that another axis tiles, do they become the minor ones?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

MESH = {"a": 2, "b": 4}
FIRST_A = [ap.ManualPartition({"x": 1}, "a"), ap.ManualPartition({"x": 0}, "b")]
X = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)

PROGRAMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "a sort": lambda x: jnp.sort(jnp.tanh(x), axis=1) * 2,
    "there and back": lambda x: x + jnp.sort(jnp.tanh(x), axis=1),
    "beside what is repeated": lambda x: jnp.sort(x, axis=1) * jnp.arange(24.0),
    "a sum over both axes": lambda x: jnp.sort(x, axis=1).T @ jnp.sort(2 * x, axis=1),
    "a transform": lambda x: jnp.abs(jnp.fft.fft(jnp.fft.fft(x, axis=1).real, axis=1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exchange_needs_no_permute(name: str):
    fun = PROGRAMS[name]
    step = ap.jit(lambda x: fun(x), ap.Mesh(MESH), FIRST_A)
    collectives = step.lower(X).program.collectives()
    assert collectives["all_to_all"]
    assert not collectives["all_permute"]
    np.testing.assert_allclose(step(X), jax.jit(fun)(X), rtol=1e-5, atol=1e-5)
