"""Does every reducer compute what it computes whole, for every element type, when the reduced dim is tiled?

or over rows of i32[8, 4], rows tiled by 8      no collective combines integers bit by bit, so the rows stay whole
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 8})
ORDERED: tuple[Callable, ...] = (lax.max, lax.min)
SUMMED: tuple[Callable, ...] = (lax.add, lax.mul)
BITWISE: tuple[Callable, ...] = (lax.bitwise_and, lax.bitwise_or)
BY_TYPE = {
    "bool": (*ORDERED, *BITWISE),
    **dict.fromkeys(("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), (*SUMMED, *ORDERED)),
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16", "uint32"), (*SUMMED, *ORDERED, *BITWISE)),
    "complex64": SUMMED,
}


def rows(dtype: str) -> np.ndarray:
    """[8, 4] of small numbers whose sums and products no type rounds; of booleans, true in every second place or so."""
    drawn = np.random.default_rng(0).integers(0, 2, (8, 4))
    return drawn.astype(bool) if dtype == "bool" else (drawn + (np.arange(8) == 3)[:, None]).astype(jnp.dtype(dtype))


def init(dtype: np.dtype, reducer: Callable) -> np.ndarray:
    """A value to begin from: true or one for products, ands and minima, else false or zero."""
    return np.ones((), dtype) if reducer in (lax.mul, lax.min, lax.bitwise_and) else np.zeros((), dtype)


@pytest.mark.parametrize("dtype", BY_TYPE)
def test_each_reducer_of_rows_in_eight_parts_computes_what_it_computes_whole(dtype: str):
    x = rows(dtype)

    def fun(x):
        return [lax.reduce(x, init(x.dtype, reducer), reducer, (0,)) for reducer in BY_TYPE[dtype]]

    parts = ap.jit(fun, MESH, [ap.ManualPartition({"x": 0}, axis="a")])(x)
    for one, other in zip(jax.jit(fun)(x), parts, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
