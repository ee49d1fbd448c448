"""An elementwise op by itself takes a time for each number beside its bytes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

CLOCK_HZ = {
    "tpu_v2": 0.70e9, "tpu_v3": 0.94e9, "tpu_v4": 1.05e9, "tpu_v5e": 1.5e9, "tpu_v5p": 1.75e9, "tpu_v6e": 1.75e9,
}  # fmt: skip

# Estimated cycles of one op of 8192 x 2048 numbers, by libtpu 0.0.51: for 1024 of them.
ELEMENTWISE = {
    ("tpu_v3", "add", "float32"): 28.80,
    ("tpu_v3", "add", "bfloat16"): 24.33,
    ("tpu_v3", "negate", "float32"): 19.83,
    ("tpu_v3", "convert", "float32"): 24.32,
    ("tpu_v4", "add", "float32"): 30.96,
    ("tpu_v4", "negate", "bfloat16"): 22.21,
    ("tpu_v4", "convert", "bfloat16"): 17.82,
    ("tpu_v5e", "add", "float32"): 39.18,
    ("tpu_v5e", "add", "bfloat16"): 35.02,
    ("tpu_v5e", "negate", "float32"): 30.85,
    ("tpu_v5e", "convert", "float32"): 35.01,
    ("tpu_v5e", "convert", "bfloat16"): 26.69,
    ("tpu_v5p", "add", "float32"): 17.42,
    ("tpu_v5p", "convert", "float32"): 15.89,
    ("tpu_v5p", "convert", "bfloat16"): 12.84,
}


@pytest.mark.parametrize(("device", "op", "dtype"), ELEMENTWISE)
def test_so_does_an_elementwise_op(device, op, dtype):
    given, other = jax.ShapeDtypeStruct((8192, 2048), jnp.dtype(dtype)), "bfloat16" if dtype == "float32" else "float32"
    step = {"add": jnp.add, "negate": jnp.negative, "convert": lambda x: x.astype(other)}[op]
    args = [given] * (2 if op == "add" else 1)
    seconds = ap.jit(step, ap.Mesh({"x": 1}, device=device), []).lower(*args).estimate.compute_s
    assert seconds * CLOCK_HZ[device] / (8 * 2048) == pytest.approx(ELEMENTWISE[device, op, dtype], rel=0.06)


def test_on_the_chip_it_takes_as_long():
    def seconds(rows):
        given = jax.ShapeDtypeStruct((rows, 2048), jnp.float32)
        return ap.jit(jnp.negative, ap.Mesh({"x": 1}, device="tpu_v5e"), []).lower(given).estimate.compute_s

    assert seconds(2048) == pytest.approx(84.3e-6, rel=0.05)
    assert seconds(8192) == pytest.approx(4 * seconds(2048), rel=0.05)


SLICED = {
    "half of the lanes": (lambda x: x[:, :128], (40_000, 256), 103.9),
    "half of the rows": (lambda x: x[:20_000], (40_000, 256), 104.0),
    "rows of each tile": (lambda x: x[:, :, 8:24], (64, 512, 32, 128), 1347.6),
    "one of three": (lambda x: x[0], (3, 20_000, 256), 63.4),
}
