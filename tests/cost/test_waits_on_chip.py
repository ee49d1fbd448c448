"""Does a small step keep what it makes on the chip, where the compiler says what lies on the chip?"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import autopart as ap

LAYERS = 6


def peak_over_arguments(device: str, rows: int, features: int, layers: int = LAYERS) -> float:
    """Of a step of data parallelism over eight: peak memory in bytes of the arguments."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.sum(x)

    def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights, x), strict=True)]

    mesh = ap.Mesh({"batch": 8}, device=device)
    weights = [jax.ShapeDtypeStruct((features, features), jnp.float32)] * layers
    x = jax.ShapeDtypeStruct((8 * rows, features), jnp.float32)
    tactic = ap.ManualPartition({"x": 0}, axis="batch")
    found = ap.jit(step, mesh, [tactic], donate_argnums=(0,)).lower(weights, x).estimate
    assert found is not None
    return found.peak_bytes / found.argument_bytes


def test_what_a_small_step_keeps_and_reduces_stays_on_the_chip_but_for_one_gradient():
    assert peak_over_arguments("tpu_v5e", 2048, 1024) <= 1.13


def test_without_memory_that_the_compiler_assigns_all_of_it_is_in_hbm():
    assert peak_over_arguments("tpu_v3", 2048, 1024) > 1.7


def test_a_step_that_holds_more_than_the_chip_keeps_it_in_hbm():
    assert peak_over_arguments("tpu_v5e", 32768, 1024) > 3.0
