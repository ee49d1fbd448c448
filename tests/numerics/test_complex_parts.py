"""Complex arrays in partitioned programs: what the TPU compiler does not take of them is done on their two parts.

It refuses a reduce_scatter of complex numbers and a constraint of their layout (libtpu 0.0.51; 15 element types and 6
collectives were compiled for v5e). It takes their other collectives.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from tests.prompt import in_turn

MESH = ap.Mesh({"b": 2, "c": 2, "m": 2})

TRANSFORMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "none": lambda y: y,
    "fft": lambda y: jnp.fft.fft(y, axis=1),
    "ifft": lambda y: jnp.fft.ifft(y, axis=1),
    "rfft": lambda y: jnp.fft.rfft(y.real, axis=1),
    "irfft": lambda y: jnp.fft.irfft(y, axis=1),
    "fft2": lambda y: jnp.fft.fft2(y, axes=(1, 2)),
}

BATCH = [ap.ManualPartition({"x": 0}, axis=axis) for axis in "bc"]
SCHEDULES = {
    "one dim": [*BATCH, ap.ManualPartition({"h": 0}, axis="b")],
    "one dim, two axes": [*BATCH, *(ap.ManualPartition({"h": 0}, axis=axis) for axis in "bc")],
    "two dims": [*BATCH, ap.ManualPartition({"h": 0}, axis="b"), ap.ManualPartition({"h": 1}, axis="c")],
    "columns too": [*BATCH, ap.ManualPartition({"h": 1}, axis="m"), ap.ManualPartition({"h": 0}, axis="b")],
}


def arguments() -> tuple[jax.Array, jax.Array]:
    """Signals, f32[B, T, C], and filters, c64[T, C]."""
    rng = np.random.default_rng(0)
    h = rng.normal(size=(32, 8)) + 1j * rng.normal(size=(32, 8))
    return jnp.asarray(rng.normal(size=(16, 32, 8)), jnp.float32), jnp.asarray(h, jnp.complex64)


@pytest.mark.parametrize(("transform", "schedule"), in_turn(TRANSFORMS, SCHEDULES))
def test_only_parts_are_scattered_and_laid_out(transform: str, schedule: str):
    def descent(x: jax.Array, h: jax.Array) -> jax.Array:
        def loss(h: jax.Array) -> jax.Array:
            return (jnp.abs(TRANSFORMS[transform](x * h)) ** 2).sum()

        return h - 0.1 * jax.grad(loss)(h).conj()

    step = ap.jit(descent, MESH, SCHEDULES[schedule])
    lowered = step.lower(*arguments())
    text = lowered.as_text("stablehlo")
    scattered = re.findall(r"\"stablehlo.reduce_scatter\".*?: \(tensor<(\S+)>\) -> ", text, re.DOTALL)
    assert len(scattered) == lowered.metadata.tactics[-1].collectives["reduce_scatter"] > 0
    assert all(type_.endswith("xf32") for type_ in scattered)
    constrained = [line for line in text.splitlines() if "@LayoutConstraint" in line]
    assert bool(constrained) == (transform != "none")
    assert not any("complex" in line for line in constrained)
    np.testing.assert_allclose(step(*arguments()), descent(*arguments()), rtol=1e-3, atol=1e-3)
