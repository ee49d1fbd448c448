"""Is padding folded into what reads it, wherever that changes no number, and nowhere else?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 4})
X = np.random.default_rng(0).integers(-4, 5, (2, 48, 4)).astype(np.float32)
KERNEL = np.random.default_rng(1).integers(-1, 2, (4, 4, 4)).astype(np.float32)
Fun = Callable[[jax.Array], jax.Array]


def _conv(x: jax.Array, **options) -> jax.Array:
    return lax.conv_general_dilated(x, KERNEL, (1,), [(0, 0)], dimension_numbers=("NWC", "WIO", "NWC"), **options)


def _pad(x: jax.Array, low: int, high: int, value: float = 0.0, interior: int = 0) -> jax.Array:
    return lax.pad(x, np.float32(value), ((0, 0, 0), (low, high, interior), (0, 0, 0)))


def _largest(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, np.float32(-np.inf), lax.max, (1, 3, 1), (1, 1, 1), "VALID")


FOLDED: dict[str, tuple[Fun, str]] = {
    "a causal convolution": (lambda x: _conv(_pad(x + 1, 3, 0)), "pad"),
    "of what jnp.pad leaves": (lambda x: _conv(jnp.pad(x + 1, ((0, 0), (3, 0), (0, 0)))), "pad"),
    "its gradient": (jax.grad(lambda x: jnp.sum(_conv(_pad(x + 1, 3, 0)) ** 2)), "pad"),
    "holes between elements": (lambda x: _conv(_pad(x + 1, 2, 2, interior=1)), "pad"),
    "a dilated input": (lambda x: _conv(_pad(x + 1, 1, 1), lhs_dilation=(2,)), "pad"),
    "a crop of what is padded": (lambda x: _pad(x + 1, 1, 1, 2.0)[:, 2:], "slice"),
    "a shift": (lambda x: _pad((x + 1)[:, 1:], 0, 1), "slice"),
    "a window's own padding": (lambda x: _largest(_pad(x + 1, 1, 1, -np.inf)), "pad"),
    "what a convolution leaves": (lambda x: _conv(_pad(x + 1, 3, 3))[:, 1:-2], "slice"),
}

KEPT: dict[str, tuple[Fun, str]] = {
    "ones around a convolution": (lambda x: _conv(_pad(x + 1, 3, 0, 1.0)), "pad"),
    "features": (lambda x: _conv(lax.pad(x[..., :2] + 1, np.float32(0), ((0, 0, 0), (3, 0, 0), (1, 1, 0)))), "pad"),
    "zeros around a maximum": (lambda x: _largest(_pad(x + 1, 1, 1)), "pad"),
    "cut and padded at one end": (lambda x: _pad((x + 1)[:, 2:], 1, 0), "slice"),
    "a stride": (lambda x: _pad(x + 1, 1, 1)[:, ::2], "slice"),
    "read by another op too": (lambda x: (y := _pad(x + 1, 3, 0), _conv(y) + y[:, 3:])[1], "convolution"),
    "a tag": (lambda x: _conv(ap.tag("padded", _pad(x + 1, 3, 0))), "pad"),
}


def kinds(fun: Fun) -> list[str]:
    """The kinds of a program's ops, after the passes of the import; its numbers are those of plain jax."""
    step = ap.jit(fun, MESH, [ap.ManualPartition({"x": 1}, axis="a")])
    low = step.lower(X)
    np.testing.assert_array_equal(step(X), fun(jnp.asarray(X)))
    program = low.program.program
    return [program.spec(op).kind for op in range(program.op_count)]


@pytest.mark.parametrize("case", FOLDED)
def test_is_folded_and_the_numbers_stay(case: str):
    fun, gone = FOLDED[case]
    assert gone not in kinds(lambda x: fun(x))


@pytest.mark.parametrize("case", KEPT)
def test_stays_where_folding_would_change_a_number_or_hide_a_name(case: str):
    fun, there = KEPT[case]
    assert there in kinds(lambda x: fun(x))


def test_a_causal_convolution_along_a_tiled_sequence_gathers_nothing():
    fun = jax.grad(lambda x: jnp.sum(_conv(_pad(x + 1, 3, 0)) ** 2))
    low = ap.jit(lambda x: fun(x), MESH, [ap.ManualPartition({"x": 1}, axis="a")]).lower(X)
    assert low.program.collectives() == {"all_permute": 2}
    assert low.metadata.gathered == ()
