"""A reduction whose kernel computes nothing else takes a time for each number on top of its bytes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

CLOCK_HZ = {
    "tpu_v2": 0.70e9, "tpu_v3": 0.94e9, "tpu_v4": 1.05e9, "tpu_v5e": 1.5e9, "tpu_v5p": 1.75e9, "tpu_v6e": 1.75e9,
}  # fmt: skip

# Estimated cycles of the maxima of 4096 rows of 1024 numbers, of the numbers and of twice each, by libtpu 0.0.51.
COMPILED = {
    ("tpu_v2", "float32"): (80_160, 76_904),
    ("tpu_v3", "float32"): (81_280, 76_648),
    ("tpu_v3", "bfloat16"): (62_912, 58_288),
    ("tpu_v4", "float32"): (91_008, 76_676),
    ("tpu_v5e", "float32"): (126_368, 76_516),
    ("tpu_v5e", "bfloat16"): (109_312, 59_460),
    ("tpu_v5p", "float32"): (58_864, 30_238),
    ("tpu_v6e", "float32"): (87_712, 45_336),
}


@pytest.mark.parametrize(("device", "dtype"), COMPILED)
def test_its_seconds_are_the_compilers(device, dtype):
    mesh, (alone, of_twice) = ap.Mesh({"x": 1}, device=device), COMPILED[device, dtype]
    given = jax.ShapeDtypeStruct((4096, 1024), jnp.dtype(dtype))

    def cycles(function) -> float:
        return ap.jit(function, mesh, []).lower(given).estimate.compute_s * CLOCK_HZ[device]

    ours, ours_of_twice = cycles(lambda x: x.max(-1)), cycles(lambda x: (2 * x).max(-1))
    assert ours == pytest.approx(alone, rel=0.05)
    assert ours - ours_of_twice == pytest.approx(alone - of_twice, rel=0.1)
