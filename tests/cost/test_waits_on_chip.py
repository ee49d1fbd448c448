"""Does a small step keep what it makes on the chip, where the compiler says what lies on the chip?"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import autopart as ap
from autopart.costmodel.compiled.simulator import Simulation
from tests.cost.programs import f32, nodes_of, simulated

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


def hbm_bytes(found: Simulation, op: str, which: int = 0) -> float:
    """Of the kernel whose root is the n-th op of a kind."""
    return float(found.node_hbm_bytes[nodes_of(found, op)[which]])


def test_what_leaves_after_its_reader_takes_memory_but_no_time_of_its_kernel():
    def step(x, w):
        kept = x @ w
        far = jnp.tanh(kept)
        for _ in range(9):
            far = jnp.tanh(far @ w)
        return far, kept + far @ w

    far = simulated(step, f32(8192, 2048), f32(2048, 2048), device="tpu_v5e")
    x, w = 4.0 * 8192 * 2048, 4.0 * 2048 * 2048
    assert hbm_bytes(far, "dot_general") <= x + w
    assert far.live.max() >= x


def test_of_two_arrays_of_half_the_chip_the_one_with_more_readers_stays():
    def step(x, w, v, s):
        once = x @ v
        often = x @ w
        return often @ s[0], often @ s[1], jnp.einsum("abk,kn->abn", once.reshape(128, 128, 2048), s[2])

    shapes = (f32(16384, 128), f32(128, 2048), f32(128, 2048), f32(3, 2048, 128))
    found = simulated(step, *shapes, device="tpu_v5e")
    size = 2.0 * 16384 * 2048
    assert hbm_bytes(found, "dot_general", 0) >= size
    assert hbm_bytes(found, "dot_general", 1) < size / 2


def test_weights_come_beside_the_kernels_before_theirs():
    def step(x, first, second):
        return jnp.tanh(x @ first) @ second

    shapes = (f32(4096, 2048), f32(2048, 2048), f32(2048, 2048))
    found = simulated(step, *shapes, device="tpu_v5e")
    weight, products = 4.0 * 2048 * 2048, nodes_of(found, "dot_general")
    first, second = (float(found.node_hbm_bytes[k]) for k in products)
    assert first >= weight + 4.0 * 4096 * 2048
    assert second < weight + 4.0 * 4096 * 2048
    assert found.hbm_bytes >= 2 * weight + 8.0 * 4096 * 2048
