"""Does `ap.Recompute` compute again what its policy does not keep, with the numbers and names of the whole program?"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.errors import ArgumentError, UnknownNameError
from autopart.core.passes import Recomputation, verify_program

MESH = ap.Mesh({"d": 4}, device="tpu_v3")
BP = ap.ManualPartition({"x": 0}, axis="d")
LAYERS = 6


def block(w, x):
    with jax.named_scope("mixer"):
        h = ap.tag("mixed", jnp.tanh(x @ w["a"]))
    return x + jnp.sin(h) @ w["b"]


def chain(apply=block):
    """A training step of a few equal blocks."""

    def step(params, x):
        def loss(params):
            y = x
            for w in params:
                y = apply(w, y)
            return jnp.mean(y**2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


def scanned(apply=block):
    """The same with one scan over stacked parameters."""

    def step(params, x):
        def loss(params):
            y, _ = lax.scan(lambda y, w: (apply(w, y), None), x, params)
            return jnp.mean(y**2)

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return step


RNG = np.random.default_rng(0)
PARAMS = [
    {"a": RNG.normal(size=(8, 32)).astype("f4") / 4, "b": RNG.normal(size=(32, 8)).astype("f4") / 4}
    for _ in range(LAYERS)
]
STACKED = jax.tree.map(lambda *leaves: np.stack(leaves), *PARAMS)
X = RNG.normal(size=(64, 8)).astype("f4")
STEPS = {"chain": (chain, PARAMS), "scan": (scanned, STACKED)}


def lower(name, *extra, apply=block, x=X):
    make, params = STEPS[name]
    return ap.jit(make(apply), MESH, [BP, *extra], donate_argnums=0).lower(params, x)


def residual_bytes(lowered) -> float:
    return lowered.estimate.peak_bytes - lowered.estimate.argument_bytes


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("keep", ["blocks", "matmuls", "nothing", "mixed", "*/mixer/*", lambda op, size, flop: flop > 0])
def test_every_policy_leaves_the_numbers(name, keep):
    make, params = STEPS[name]
    lowered = lower(name, ap.Recompute(keep))
    expected = jax.jit(make())(params, X)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), lowered.compile()(params, X), expected
    )
