"""What features cost that are split into parts, of products and of convolutions, forward and backward.

Microseconds as libtpu 0.0.51 has them, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cost.programs import f32, simulated


def mixture(parts: jax.Array) -> jax.Array:
    """Log-likelihoods of mixtures: each part has weights, means and scales."""
    weights, means, scales = jnp.split(parts, 3, -1)
    return jax.nn.logsumexp(jax.nn.log_softmax(weights) - jnp.square(means) * jnp.exp(-scales) - scales, -1).sum()


def boxes(parts: jax.Array) -> jax.Array:
    """Of a detector: whether there is one, and where."""
    return (jax.nn.sigmoid(parts[..., :1]) * jnp.exp(parts[..., 1:])).sum()


def atoms(parts: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.tanh(parts), -1).sum()


def normal(parts: jax.Array) -> jax.Array:
    return (parts * jax.lax.rsqrt((parts * parts).mean(-1, keepdims=True) + 1e-6)).sum()


HEADS = {"mixture": mixture, "boxes": boxes, "atoms": atoms, "normal": normal}


def seconds(head: str, parts: tuple[int, int], device: str, of_images: bool, back: bool) -> float:
    """Of a head on 6,144 rows, or on 6 images of 32 x 32, made of 320 features."""

    def forward(x: jax.Array, w: jax.Array) -> jax.Array:
        if of_images:
            y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        else:
            y = x @ w
        return HEADS[head](y.reshape(*y.shape[:-1], *parts))

    features = parts[0] * parts[1]
    given = (f32(6, 32, 32, 320), f32(1, 1, 320, features)) if of_images else (f32(6144, 320), f32(320, features))
    return simulated(jax.grad(forward, (0, 1)) if back else forward, *given, device=device).compute_s


@pytest.mark.parametrize(
    ("head", "parts", "device", "back", "compiled_us"),
    [
        ("atoms", (6, 51), "tpu_v3", False, 135.0),
        ("atoms", (6, 51), "tpu_v3", True, 355.2),
        ("atoms", (18, 51), "tpu_v3", False, 353.3),
        ("atoms", (18, 51), "tpu_v3", True, 983.1),
        ("atoms", (18, 51), "tpu_v5e", False, 232.5),
        ("normal", (8, 40), "tpu_v3", False, 150.4),
        ("normal", (8, 40), "tpu_v3", True, 215.8),
        ("normal", (8, 40), "tpu_v5e", False, 75.6),
        ("normal", (8, 40), "tpu_v5e", True, 88.7),
        ("normal", (8, 64), "tpu_v3", False, 124.5),
        ("normal", (8, 64), "tpu_v3", True, 231.5),
        ("normal", (8, 64), "tpu_v5e", True, 86.2),
    ],
)
def test_parts_of_what_a_product_makes(head: str, parts: tuple[int, int], device: str, back: bool, compiled_us: float):
    """Sums over parts of 64 are made by the product, others by a kernel that reads it; what is spread over parts is
    written, or what is computed of it."""
    assert 0.78 < 1e6 * seconds(head, parts, device, False, back) / compiled_us < 1.25


@pytest.mark.parametrize(
    ("head", "parts", "device", "back", "compiled_us"),
    [
        ("boxes", (9, 6), "tpu_v3", False, 97.5),
        ("mixture", (16, 6), "tpu_v3", False, 196.4),
        ("mixture", (16, 6), "tpu_v5e", True, 216.0),
        ("atoms", (6, 51), "tpu_v3", False, 411.5),
        ("atoms", (6, 51), "tpu_v3", True, 824.4),
        ("atoms", (6, 51), "tpu_v5e", True, 442.4),
        ("atoms", (18, 51), "tpu_v3", False, 1067.4),
        ("atoms", (18, 51), "tpu_v3", True, 2051.4),
        ("normal", (8, 40), "tpu_v3", False, 446.3),
        ("normal", (8, 40), "tpu_v3", True, 705.6),
        ("normal", (8, 40), "tpu_v5e", False, 257.1),
        ("normal", (8, 64), "tpu_v3", False, 512.4),
        ("normal", (8, 64), "tpu_v5e", False, 276.8),
    ],
)
def test_parts_of_images(head: str, parts: tuple[int, int], device: str, back: bool, compiled_us: float):
    """Parts of 40 and 51 lie along the lanes, those of 6 do not."""
    assert 0.75 < 1e6 * seconds(head, parts, device, True, back) / compiled_us < 1.3


@pytest.mark.parametrize(
    ("parts", "inside"),
    [
        ((8, 8), True), ((8, 16), True), ((8, 24), False), ((8, 32), True), ((8, 40), False), ((4, 96), False),
        ((4, 128), True), ((2, 160), False), ((2, 256), True), ((6, 128), False), ((5, 32), False), ((12, 64), False),
        ((16, 64), True), ((12, 8), True), ((40, 8), True), ((16, 128), True), ((8, 512), False), ((64, 64), False),
    ],
)  # fmt: skip
def test_which_sums_over_parts_a_product_makes(parts: tuple[int, int], inside: bool):
    """As libtpu 0.0.51 compiled them, on v3 and v5e alike."""

    def largest(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.max(jnp.tanh((x @ w).reshape(2048, *parts)), -1)

    run = simulated(largest, f32(2048, 256), f32(256, parts[0] * parts[1]), device="tpu_v5e")
    nodes, program = run.graph.nodes, run.local.program
    kinds = [program.spec(int(op)).kind for op in nodes["subject"]]
    leaders = {int(run.leader[k]) for k in np.flatnonzero(nodes["kind"] == 0) if kinds[k] in ("reduce", "dot_general")}
    assert (len(leaders) == 1) == inside
