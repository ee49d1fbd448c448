"""Complex arrays in partitioned programs: what the TPU compiler does not take of them is done on their two parts."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np

import autopart as ap

MESH = ap.Mesh({"b": 4, "m": 2})
BATCH = ap.ManualPartition({"x": 0}, axis="b")
FILTERS = ap.ManualPartition({"h": 1}, axis="m")
PARTS = ap.ManualPartition({"h": 0}, axis="b", name="Z3")


def descent(x: jax.Array, h: jax.Array) -> jax.Array:
    """A step on complex filters, [T, C], of signals [B, T, C]."""

    def loss(h: jax.Array) -> jax.Array:
        return jnp.abs(jnp.fft.ifft(jnp.fft.fft(x, axis=1) * jnp.fft.fft(h, axis=0), axis=1)).sum()

    return h - 0.1 * jax.grad(loss)(h).conj()


def arguments() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    h = rng.normal(size=(32, 8)) + 1j * rng.normal(size=(32, 8))
    return rng.normal(size=(16, 32, 8)).astype(np.float32), h.astype(np.complex64)


def test_sums_of_complex_gradients_are_scattered_by_their_parts():
    step = ap.jit(descent, MESH, [BATCH, FILTERS, PARTS])
    lowered = step.lower(*arguments())
    assert lowered.metadata.tactics[-1].collectives["reduce_scatter"] == 1
    text = lowered.as_text("stablehlo")
    (scattered,) = re.findall(r"reduce_scatter.*?: \((\S+)\) -> (\S+)", text, re.DOTALL)
    assert scattered == ("tensor<2x32x4xf32>", "tensor<2x8x4xf32>")
    np.testing.assert_allclose(step(*arguments()), descent(*map(jnp.asarray, arguments())), rtol=1e-4, atol=1e-4)


def test_layouts_are_constrained_of_parts_alone():
    text = ap.jit(descent, MESH, [BATCH, FILTERS, PARTS]).lower(*arguments()).as_text("stablehlo")
    constrained = [line for line in text.splitlines() if "@LayoutConstraint" in line]
    assert constrained
    assert not any("complex" in line for line in constrained)
