"""Do Fourier transforms take about the seconds that the TPU compiler estimates?

Microseconds by libtpu 0.0.51, one transform alone, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap

V5E = ap.Mesh({"x": 1}, device="tpu_v5e")
V3 = ap.Mesh({"x": 1}, device="tpu_v3")

COMPILED = [
    (V5E, jnp.fft.fft, (512, 256), 10.9),
    (V5E, jnp.fft.fft, (512, 768), 33.7),
    (V5E, jnp.fft.fft, (512, 1024), 38.8),
    (V5E, jnp.fft.fft, (512, 2048), 83.5),
    (V5E, jnp.fft.fft, (64, 32768), 155.2),
    (V5E, jnp.fft.rfft, (512, 1024), 36.9),
    (V5E, jnp.fft.rfft, (512, 2048), 70.0),
    (V5E, jnp.fft.rfft, (512, 4096), 153.0),
    (V5E, jnp.fft.rfft, (2048, 1024), 153.8),
    (V5E, jnp.fft.rfft, (4096, 256), 46.9),
    (V5E, jnp.fft.irfft, (512, 513), 49.9),
    (V5E, jnp.fft.irfft, (512, 1025), 115.3),
    (V5E, jnp.fft.irfft, (512, 129), 17.6),
    (V5E, jnp.fft.fft2, (32, 128, 128), 25.6),
    (V5E, jnp.fft.rfft2, (32, 128, 128), 22.9),
    (V5E, jnp.fft.fft2, (32, 256, 256), 198.7),
    (V3, jnp.fft.fft, (512, 256), 57.8),
    (V3, jnp.fft.fft, (512, 1024), 193.2),
    (V3, jnp.fft.fft, (512, 2048), 351.7),
    (V3, jnp.fft.rfft, (512, 1024), 193.8),
    (V3, jnp.fft.irfft, (512, 513), 214.0),
    (V3, jnp.fft.fft2, (32, 128, 128), 134.3),
]


def ratio(mesh: ap.Mesh, transform, shape: tuple[int, ...], compiled_us: float) -> float:
    real = transform in (jnp.fft.rfft, jnp.fft.rfft2)
    x = jax.ShapeDtypeStruct(shape, jnp.float32 if real else jnp.complex64)
    estimate = ap.jit(transform, mesh, []).lower(x).estimate
    return 1e6 * estimate.compute_s / compiled_us


@pytest.mark.parametrize("case", COMPILED, ids=map(str, range(len(COMPILED))))
def test_a_transform_takes_about_as_long_as_compiled(case):
    assert 0.8 < ratio(*case) < 1.45


def test_transforms_are_not_off_on_average():
    off = np.log([ratio(*case) for case in COMPILED])
    assert abs(off.mean()) < 0.1
    assert np.abs(off).mean() < 0.2


def test_a_gpu_has_a_kernel_for_transforms():
    def step_s(device: str) -> float:
        x = jax.ShapeDtypeStruct((4096, 1024), jnp.complex64)
        return ap.jit(jnp.fft.fft, ap.Mesh({"x": 1}, device=device), []).lower(x).estimate.compute_s

    assert step_s("h100") < 0.1 * step_s("tpu_v5e")


def test_transforms_of_real_numbers_are_kept_whole():
    """A convolution by transforms keeps both factors for its gradient: libtpu 0.0.51 holds 9.5 f32[rows,2048]."""

    def loss(x, y):
        return jnp.sum(jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(y)) ** 2)

    def held(rows):
        x = jax.ShapeDtypeStruct((rows, 2048), jnp.float32)
        found = ap.jit(jax.grad(loss, argnums=(0, 1)), V3).lower(x, x).estimate
        return found.peak_bytes - found.argument_bytes - found.output_bytes

    assert held(65536) > 6.5 * 65536 * 2048 * 4
