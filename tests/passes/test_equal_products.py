"""Is a product that is written twice computed once, and nothing else, and do numbers stay?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.verify_local import verify

MESH, V5E = ap.Mesh({"a": 4, "b": 2}), ap.Mesh({"a": 4, "b": 2}, device="tpu_v5e")
X = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)
Fun = Callable[[jax.Array, jax.Array], object]


def model(x: jax.Array, w: jax.Array) -> jax.Array:
    for _ in range(2):
        x = jax.nn.relu(x @ w + 1.0)
    return x


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.square(model(x, w)).mean()


def players(x: jax.Array, w: jax.Array) -> object:
    """Two losses of the same output, each with its gradient."""
    return jax.grad(loss)(w, x), jax.grad(lambda v: (model(x, w) @ v).mean())(w)


def in_a_loop(x: jax.Array, w: jax.Array) -> object:
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w) + jnp.tanh(c @ w) * 2, None), x, length=3)[0]


ONCE: dict[str, tuple[Fun, int]] = {
    "twice": (lambda x, w: (x @ w, jnp.tanh(x @ w)), 1),
    "returned twice": (lambda x, w: (x @ w, x @ w), 1),
    "computed of equal products": (lambda x, w: (model(x, w), 2 * model(x, w)), 2),
    "of what equal ops make": (lambda x, w: (jnp.sin(x) @ w, jnp.sin(x) @ w + 1), 1),
    "a metric beside the gradient": (lambda x, w: (jax.grad(loss)(w, x), model(x, w).argmax(-1)), 5),
    "two players": (players, 6),
    "in a loop": (in_a_loop, 1),
    "tagged behind": (lambda x, w: (ap.tag("a", x @ w), ap.tag("b", x @ w)), 1),
}
"""And how many products there are then."""

TWICE: dict[str, Fun] = {
    "other operands": lambda x, w: (x @ w, x @ w.T),
    "behind a barrier": lambda x, w: (x @ w, x @ jax.lax.optimization_barrier(w)),
    "behind a tag": lambda x, w: (x @ ap.tag("w", w), x @ w),
    "another precision": lambda x, w: (x @ w, jnp.matmul(x, w, precision="highest")),
    "of two draws": lambda x, w: tuple(jax.lax.rng_uniform(0.0, 1.0, x.shape) @ w for _ in range(2)),
    "in a branch": lambda x, w: (x @ w, jax.lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x)),
}


def products(fun: Fun) -> int:
    program = ap.jit(fun, MESH, []).lower(X, W).program.program
    return sum(program.spec(op).kind == "dot_general" for op in range(program.op_count))


@pytest.mark.parametrize("case", ONCE)
def test_equal_products_are_computed_once(case: str):
    fun, count = ONCE[case]
    assert products(fun) == count


@pytest.mark.parametrize("case", TWICE)
def test_other_products_stay(case: str):
    assert products(TWICE[case]) == 2


@pytest.mark.parametrize("case", ONCE)
def test_numbers_stay(case: str):
    fun, _ = ONCE[case]
    step = ap.jit(fun, MESH, [ap.ManualPartition({"x": 0}, axis="a"), ap.ManualPartition({"w": 1}, axis="b")])
    verify(step.lower(X, W).program)
    for ours, theirs in zip(jax.tree.leaves(step(X, W)), jax.tree.leaves(jax.jit(fun)(X, W)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_equal_ops_without_products_stay():
    program = ap.jit(lambda x: (jnp.sin(x) + 1, jnp.sin(x) + 2), MESH, []).lower(X).program.program
    assert sum(program.spec(op).kind == "sine" for op in range(program.op_count)) == 2


def test_a_metric_costs_no_second_pass():
    def step(x, w):
        return jax.grad(loss)(w, x), model(x, w).argmax(-1)

    def alone(x, w):
        return jax.grad(loss)(w, x)

    both, one = (ap.jit(f, V5E, []).lower(X, W).estimate for f in (step, alone))
    assert both.flop < 1.2 * one.flop  # another forward pass would be a third more
