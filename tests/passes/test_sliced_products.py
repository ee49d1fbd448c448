"""Is a product of which only slices are read one for each slice, where that costs no more, and do numbers stay?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify
from tests.prompt import in_turn

MESH = ap.Mesh({"a": 4, "b": 2})
X = np.random.default_rng(0).integers(-2, 3, (512, 8)).astype(np.float32)
W = np.random.default_rng(1).integers(-2, 3, (8, 384)).astype(np.float32)
Fun = Callable[[jax.Array, jax.Array], object]


def _split(product: jax.Array, *at: int) -> object:
    return [part * (k + 1) for k, part in enumerate(jnp.split(product, at, axis=-1))]


def _of_joined(x: jax.Array, w: jax.Array) -> object:
    """The gradient of arrays that are joined before a product."""

    def loss(parts: list[jax.Array]) -> jax.Array:
        return jnp.sum(jnp.square(jnp.concatenate(parts, axis=-1) @ w.T))

    return jax.grad(loss)([x[:, :1] * jnp.ones((1, 128)), x[:, 1:2] * jnp.ones((1, 256))])


DIVIDED: dict[str, tuple[Fun, int]] = {
    "queries, keys and values": (lambda x, w: _split(x @ w, 128, 256), 3),
    "parts of several lengths": (lambda x, w: _split(x @ w, 128), 2),
    "the other operand's rows": (lambda x, w: [y * 2 for y in jnp.split(w.T @ x.T, 3, axis=0)], 3),
    "a batch of products": (lambda x, w: _split(jnp.einsum("bij,bjk->bik", *map(_twice, (x, w))), 128, 256), 3),
    "parts that leave some out": (lambda x, w: (lambda y: (y[:, :128] * 2, y[:, 256:] * 3))(x @ w), 2),
    "the gradient of what was joined": (_of_joined, 3),
}
"""And how many products there are then."""

KEPT: dict[str, Fun] = {
    "parts that fill more tiles of a matrix unit": lambda x, w: _split(x @ w, 64, 320),
    "parts that overlap": lambda x, w: (lambda y: (y[:, :256] * 2, y[:, 128:] * 3))(x @ w),
    "read as a whole too": lambda x, w: (lambda y: (_split(y, 128, 256), -y))(x @ w),
    "slices of two dims": lambda x, w: (lambda y: (y[:256, :128] * 2, y[256:, 128:256] * 3))(x @ w),
    "every second column": lambda x, w: (lambda y: (y[:, ::2] * 2, y[:, 1::2] * 3))(x @ w),
    "a batch dim": lambda x, w: [y * 2 for y in jnp.split(jnp.einsum("bij,bjk->bik", _twice(x), _twice(w)), 2)],
    "a small product of large operands": lambda x, w: [y * 2 for y in jnp.split(x.T @ x @ w, 3, axis=1)],
    "a tag": lambda x, w: _split(ap.tag("product", x @ w), 128, 256),
}


def _twice(x: jax.Array) -> jax.Array:
    return jnp.stack([x, 2 * x])


def products(fun: Fun, schedule: list[ap.Tactic]) -> int:
    """How many products the program has after import; partitioned, it gives the numbers of plain jax."""
    step = ap.jit(fun, MESH, schedule)
    low = step.lower(X, W)
    verify(low.program)
    for ours, theirs in zip(*map(jax.tree.leaves, (step(X, W), fun(jnp.asarray(X), jnp.asarray(W)))), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    program = low.program.program
    return [program.spec(op).kind for op in range(program.op_count)].count("dot_general")


SCHEDULES = {
    "rows": [ap.ManualPartition({"x": 0}, axis="a")],
    "columns": [ap.ManualPartition({"w": 1}, axis="a")],
    "rows, and the weights stored in parts": [
        ap.ManualPartition({"x": 0}, axis="a"),
        ap.ManualPartition({"w": 1}, axis="a"),
    ],
    "both axes": [ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"w": 1}, axis="b")],
}


@pytest.mark.parametrize(("case", "schedule"), in_turn(DIVIDED, SCHEDULES))
def test_is_divided_and_the_numbers_stay(case: str, schedule: str):
    fun, count = DIVIDED[case]
    assert products(lambda x, w: fun(x, w), SCHEDULES[schedule]) == count


@pytest.mark.parametrize("case", KEPT)
def test_stays_where_it_would_cost_more_or_is_read_otherwise(case: str):
    fun = KEPT[case]
    whole = len([line for line in jax.jit(fun).lower(X, W).as_text().splitlines() if "dot_general" in line])
    assert products(lambda x, w: fun(x, w), SCHEDULES["rows"]) == whole


def test_weights_stored_in_parts_are_gathered_once_for_all_slices():
    low = ap.jit(lambda x, w: _split(x @ w, 128, 256), MESH, SCHEDULES["rows, and the weights stored in parts"])
    assert low.lower(X, W).program.collectives() == {"all_gather": 1}


def test_weights_stored_in_parts_and_read_in_stretches_are_gathered_once():
    rows, columns = ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"w": 1}, axis="b")
    step = ap.jit(lambda x, w: _split(x @ w, 128, 256), MESH, [rows, columns, ap.ManualPartition({"w": 1}, axis="a")])
    assert step.lower(X, W).program.collectives() == {"all_gather": 1, "all_permute": 2}
    for ours, theirs in zip(step(X, W), _split(jnp.asarray(X) @ W, 128, 256), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gathers_are_shared_with_the_weights_other_uses_where_the_schedule_says_so():
    def fun(x: jax.Array, w: jax.Array) -> object:
        return x @ w[:, :128], _split(x @ w, 128, 256)

    stored = [*SCHEDULES["rows, and the weights stored in parts"]]
    apart, shared = (ap.jit(fun, MESH, [*stored, *more]).lower(X, W) for more in ([], [ap.SharedGathers(1000)]))
    assert (apart.program.collectives(), shared.program.collectives()) == ({"all_gather": 2}, {"all_gather": 1})


def test_other_operand_that_is_stored_in_parts_is_gathered_once():
    rows, columns = ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"w": 1}, axis="b")
    step = ap.jit(lambda x, w: _split(x @ w, 128, 256), MESH, [columns, rows, ap.ManualPartition({"x": 0}, axis="b")])
    assert step.lower(X, W).program.collectives() == {"all_gather": 1, "all_permute": 2}
