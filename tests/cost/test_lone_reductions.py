"""A reduction whose kernel computes nothing else takes a time for each number on top of its bytes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

CLOCK_HZ = {"tpu_v3": 0.94e9, "tpu_v5e": 1.5e9}

# Estimated cycles of 4096 x 1024 numbers, by libtpu 0.0.51 for v3:2x2 and v5e:2x4.
COMPILED = {
    ("tpu_v5e", "maximum", "float32"): 126_368,
    ("tpu_v5e", "of_twice", "float32"): 76_516,
    ("tpu_v5e", "maximum", "bfloat16"): 109_312,
    ("tpu_v5e", "of_twice", "bfloat16"): 59_460,
    ("tpu_v3", "maximum", "float32"): 81_280,
    ("tpu_v3", "of_twice", "float32"): 76_648,
    ("tpu_v3", "maximum", "bfloat16"): 62_912,
    ("tpu_v3", "of_twice", "bfloat16"): 58_288,
}
FUNCTIONS = {"maximum": lambda x: x.max(-1), "of_twice": lambda x: (2 * x).max(-1)}


@pytest.mark.parametrize(("device", "function", "dtype"), COMPILED)
def test_its_cycles_are_the_compilers(device, function, dtype):
    mesh = ap.Mesh({"x": 1}, device=device)
    given = jax.ShapeDtypeStruct((4096, 1024), jnp.dtype(dtype))
    found = ap.jit(FUNCTIONS[function], mesh, []).lower(given).estimate
    assert found.compute_s * CLOCK_HZ[device] == pytest.approx(COMPILED[device, function, dtype], rel=0.05)
