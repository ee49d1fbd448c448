"""Do the copies around sorts take about what the TPU compiler says?

Microseconds by libtpu 0.0.51 for v5e:2x4, on one device, which no test compiles again: its text has none for the sorts
themselves, so ours, which count what they read and write, may be above.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

V5E = ap.Mesh({"x": 1}, device="tpu_v5e")


def top_k(x):
    return jax.lax.top_k(x, 32)


COPIES = {
    "top_k of 256": (117.3, top_k, (16_384, 256)),
    "top_k of 1,024": (761.8, top_k, (16_384, 1024)),
    "top_k of 2,048": (165.5, top_k, (4096, 2048)),
    "top_k of three dims": (769.1, top_k, (64, 256, 1024)),
    "sort of 512": (151.6, lambda x: jnp.sort(x, -1), (16_384, 512)),
    "sort of 1,024": (681.5, lambda x: jnp.sort(x, -1), (16_384, 1024)),
    "argsort": (681.5, lambda x: jnp.argsort(x, -1), (16_384, 1024)),
    "median": (985.8, lambda x: jnp.median(x, -1), (16_384, 1024)),
}
"""Microseconds, what sorts, and the shape."""


def us(function, *shape: int) -> float:
    return 1e6 * ap.jit(function, V5E, []).lower(jax.ShapeDtypeStruct(shape, jnp.float32)).estimate.compute_s


@pytest.mark.parametrize("name", COPIES)
def test_rows_along_the_lanes_are_turned(name):
    expected, function, shape = COPIES[name]
    assert 0.65 <= us(function, *shape) / expected <= 1.4


def test_columns_short_rows_and_the_largest_of_many_are_not():
    assert us(lambda x: jnp.sort(x, 0), 1024, 16_384) < 0.4 * us(lambda x: jnp.sort(x, -1), 16_384, 1024)
    assert us(lambda x: jnp.sort(x, -1), 16_384, 64) < 10
    assert us(lambda x: jnp.sort(x), 1 << 20) < 10
