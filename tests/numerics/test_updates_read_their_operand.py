"""Do updates that read what they overwrite compute the same, whatever views of it stand before and behind them?

    x -> sort -> view -> dynamic_update_slice(view, f(x)) -> view

The result is compared with the same ops one by one, in NumPy's place: where the whole is compiled at once, plain jax
itself loses rows for some of these views.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from tests.prompt import slow

ROWS, COLUMNS = 8, 4
X = np.random.default_rng(0).permutation(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype("i4")

Op = Callable[[jax.Array], jax.Array]

READS: dict[str, Op] = {
    "last rows reversed": lambda x: x[::-1][:4],
    "rows shifted": lambda x: x[1:5],
    "sums of rows": lambda x: (x + x[::-1])[:4],
    "every row the first": lambda x: jnp.broadcast_to(x[2], (4, COLUMNS)) + x[4:],
}
WRITES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "update": lambda x, u: lax.dynamic_update_slice(x, u, (2, 0)),
    "update past the end": lambda x, u: lax.dynamic_update_slice(x, u, (7, 0)),
    "set": lambda x, u: x.at[2:6].set(u),
    "add": lambda x, u: x.at[2:6].add(u),
    "update of a view": lambda x, u: lax.dynamic_update_slice(x[None], u[None], (0, 2, 0)).reshape(x.shape),
    "update of all in a row": lambda x, u: lax.dynamic_update_slice(x.reshape(-1), u.reshape(-1), (8,)).reshape(
        x.shape
    ),
    "update in a loop": lambda x, u: lax.fori_loop(
        0, 2, lambda i, y: lax.dynamic_update_slice(y, y[::-1][:4], (2, 0)), x
    ),
}
VIEWS: dict[str, Op] = {
    "none": lambda y: y,
    "copies": lambda y: jnp.broadcast_to(y, (8, *y.shape)),
    "one more dim": lambda y: y[..., None],
    "turned": lambda y: y.T,
}


def program(view: Op) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Every write of every reading, seen in one view, which is all that reads it."""

    def run(x):
        x = jnp.sort(x, axis=0)
        pairs = itertools.product(READS.items(), WRITES.items())
        return {f"{write}, {read}": view(into(x, u(x))) for (read, u), (write, into) in pairs}

    return run


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("devices", [slow(1), 8])
def test_a_row_is_read_before_it_is_overwritten(devices: int, view: str):
    fun = program(VIEWS[view])
    dim = 0 if view == "copies" else ap.UNKNOWN
    found = ap.jit(fun, ap.Mesh({"a": devices}), [ap.ManualPartition({"outputs": dim}, axis="a")])(X)
    with jax.disable_jit():
        expected = fun(jnp.asarray(X))
    assert [name for name in expected if not np.array_equal(expected[name], found[name])] == []


def test_what_reads_nothing_that_it_overwrites_is_left_as_it_is():
    def stacked(x):
        return lax.scan(lambda carry, row: (carry + row, carry * row), jnp.zeros(COLUMNS), x)[1]

    def written(x, rows, i):
        return lax.dynamic_update_slice(x, rows, (i, 0)), x.at[i].add(rows[0])

    def text(fun, *args):
        return (
            ap.jit(fun, ap.Mesh({"a": 2}), [ap.ManualPartition({"x": 1}, axis="a")]).lower(*args).as_text("stablehlo")
        )

    assert "LayoutConstraint" not in text(stacked, X.astype("f4"))
    assert "LayoutConstraint" not in text(written, X, X[:2], np.int32(3))


TRANSFORMS: dict[str, Op] = {
    "fft": lambda x: jnp.fft.fft(x).real,
    "ifft": lambda x: jnp.fft.ifft(x).real,
    "rfft": lambda x: jnp.abs(jnp.fft.rfft(x))[..., :4],
    "irfft": lambda x: jnp.fft.irfft(x + 0j)[..., :8],
    "fft2": lambda x: jnp.abs(jnp.fft.fft2(x)),
}


@pytest.mark.parametrize("moved", [0, 1])
def test_a_transform_stands_before_a_collective_along_any_dim(moved: int):
    def fun(x):
        return {name: jnp.minimum(ap.tag("transformed", op(x)), 50.0) for name, op in TRANSFORMS.items()}

    x = np.random.default_rng(0).normal(size=(8, 8, 8)).astype("f4")
    before = ap.ManualPartition({"transformed": moved}, axis="a")
    behind = ap.ManualPartition({"outputs": ap.REPLICATED}, axis="a")
    for schedule in [behind, before], [ap.ManualPartition({"x": 2, "outputs": moved}, axis="a")]:
        found = ap.jit(fun, ap.Mesh({"a": 2}), schedule)(x)
        for name, whole in jax.jit(fun)(x).items():
            np.testing.assert_allclose(found[name], whole, atol=1e-5)
