"""Are slices of a length that no axis divides as long as what they are of, where that pays, with the same numbers?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"a": 2, "b": 4})
R = np.random.default_rng(0)
X = R.normal(size=(4, 16, 8)).astype("f4")
W = R.normal(size=(8, 8)).astype("f4")
TOKENS = R.integers(0, 8, (4, 16))
ROWS = ap.ManualPartition({"x": 0}, axis="a", name="rows")
PLACES = ap.ManualPartition({"x": 1}, axis="b", name="places")


def _gradients(fun: Callable[..., jax.Array]) -> Callable[..., object]:
    def both(x: jax.Array, w: jax.Array) -> object:
        return jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(fun(x, w))), (0, 1))(x, w)

    return both


def _next_token(x: jax.Array, w: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(jnp.tanh(x @ w)[:, :-1])
    return -jnp.mean(jnp.take_along_axis(scores, TOKENS[:, 1:, None], -1))


def _attended(x: jax.Array, w: jax.Array) -> jax.Array:
    seen = x[:, :-1]
    weights = jnp.einsum("bqd,bkd->bqk", seen @ w, seen)
    weights = jnp.where(jnp.tril(jnp.ones((15, 15), bool)), weights, -jnp.inf)
    return jax.nn.softmax(weights) @ seen


def _layers(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.scan(lambda h, _: (jnp.tanh(h @ w) + x[:, 1:], h.sum()), x[:, :-1], None, length=3)[0]


EVENED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "the next token's loss": _next_token,
    "inputs without the last": _attended,
    "layers in a scan": _layers,
    "differences": lambda x, w: jnp.diff(x, axis=1) @ w,
    "stencil": lambda x, w: (x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]) @ w,
    "logarithms of what is cut off": lambda x, w: jnp.log(jnp.abs(x.at[:, -1].set(0))[:, :-1]) @ w,
    "a shift by jnp.pad": lambda x, w: (x - jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]) @ w,
    "a shift by zeros": lambda x, w: jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1) @ w,
    "a shift that repeats the first": lambda x, w: jnp.concatenate([x[:, :1], x[:, :-1]], 1) @ w,
    "a roll": lambda x, w: jnp.roll(x, 1, 1) @ w,
    "a roll backwards": lambda x, w: jnp.roll(x, -3, 1) @ w,
    "pieces of two arrays": lambda x, w: jnp.concatenate([x[:, 15:], jnp.sin(x)[:, :15]], 1) @ w,
    "chunks and those before them": lambda x, w: jnp.concatenate(
        [jnp.roll(x.reshape(4, 8, 2, 8), 1, 1), x.reshape(4, 8, 2, 8)], 2) @ w,
}  # fmt: skip


QUICK = ("the next token's loss", "stencil", "a roll")
"""The cases that run by default, one of each way in which slices become longer."""


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EVENED])
def test_shifts_along_tiled_places_gather_nothing_and_keep_the_numbers(name: str):
    fun = _gradients(EVENED[name])
    step = ap.jit(fun, MESH, [ROWS, PLACES])
    low = step.lower(X, W)
    assert not [g for g in low.metadata.gathered if g.kind in ("slice", "pad", "concatenate", "select")]
    for got, want in zip(jax.tree.leaves(step(X, W)), jax.tree.leaves(jax.jit(fun)(X, W)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


KEPT: dict[str, Callable[[jax.Array], object]] = {
    "what is returned": lambda x: jnp.sin(x[:, :-1]),
    "what a sort reads": lambda x: jnp.sort(jnp.sin(x[:, :-1]), 1),
    "more than an eighth": lambda x: x[:, 5:].sum(),
    "every second": lambda x: x[:, 1::2].sum(),
    "an even part": lambda x: x.reshape(512)[64:].sum(),
}


@pytest.mark.parametrize("name", KEPT)
def test_slices_stay_where_being_longer_would_not_pay(name: str):
    fun = KEPT[name]
    program = ap.jit(lambda x: fun(x), MESH, []).lower(X).program.program
    assert not [spec.kind for spec in program.specs if spec.kind in ("select", "pad")]
    assert [spec.kind for spec in program.specs if spec.kind == "slice"]


@pytest.mark.parametrize(("places", "chosen"), [(64, 1), (51, 0)])
def test_padding_up_to_a_length_that_no_axis_divides_stays(places: int, chosen: int):
    def first_alone(x: jax.Array) -> jax.Array:
        return lax.pad(x[:, :1], 0.0, ((0, 0, 0), (0, places - 1, 0)))

    program = ap.jit(first_alone, MESH, []).lower(np.ones((8, places), np.float32)).program.program
    kinds = [program.spec(op).kind for op in range(program.op_count)]
    assert kinds.count("select") == chosen


@pytest.mark.parametrize(
    "dtype", ["bool", *(pytest.param(d, marks=pytest.mark.slow) for d in ("int8", "bfloat16", "complex64"))]
)
def test_pieces_of_any_type_are_chosen_by_place(dtype: str):
    x = (X > 0 if dtype == "bool" else X * 8).astype(dtype)
    fun = lambda x: (jnp.roll(x, 1, 1), jnp.pad(x[:, 1:], ((0, 0), (1, 0), (0, 0)), constant_values=1))  # noqa: E731
    for got, want in zip(ap.jit(fun, MESH, [ROWS, PLACES])(x), fun(jnp.asarray(x)), strict=True):
        np.testing.assert_array_equal(got, want)
