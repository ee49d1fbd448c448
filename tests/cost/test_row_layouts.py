"""Does an update by rows that are shorter than a layout tile cost what the TPU compiler says?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest

import autopart as ap

ROWS, LOOK_UPS = 100_000, 16_384


def _estimate(width: int, device: str = "tpu_v5e", optimizer: optax.GradientTransformation | None = None):
    optimizer = optimizer or optax.adagrad(1e-2)

    def step(params, state, rows, w):
        def loss(table):
            return jnp.sum(jnp.tanh(jnp.take(table, rows, axis=0, mode="clip") @ w))

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    table = jax.ShapeDtypeStruct((ROWS, width), jnp.float32)
    args = (
        table, jax.eval_shape(optimizer.init, table), jax.ShapeDtypeStruct((LOOK_UPS,), jnp.int32),
        jax.ShapeDtypeStruct((width, 256), jnp.float32),
    )  # fmt: skip
    return ap.jit(step, ap.Mesh({"b": 8}, device=device), [], donate_argnums=(0, 1)).lower(*args).estimate


@pytest.mark.parametrize(("width", "compiler_us"), [(16, 690), (64, 772), (128, 403)])
def test_an_update_by_short_rows_takes_what_the_compiler_says(width: int, compiler_us: float):
    assert 0.8 < 1e6 * _estimate(width).compute_s / compiler_us < 1.25


def test_short_rows_take_the_room_of_a_layout_tile():
    bytes_of_rows = ROWS * 128 * 4
    assert _estimate(16).peak_bytes > 2 * bytes_of_rows
    assert _estimate(16, "h100").peak_bytes < bytes_of_rows


def test_rows_of_a_layout_tile_are_not_copied():
    assert _estimate(128).peak_bytes < 0.5 * _estimate(64).peak_bytes


SCALED = {
    "adam": (84, 19.8, optax.adam(1e-2)),
    "adamw": (135, 19.4, optax.adamw(1e-2)),
    "rmsprop": (141, 12.9, optax.rmsprop(1e-2)),
    "lion": (124, 12.9, optax.lion(1e-2)),
    "adafactor": (187, 13.2, optax.adafactor(1e-2)),
    "lamb": (208, 19.7, optax.lamb(1e-2)),
}
"""Microseconds and MB by libtpu 0.0.51 for v5e of one update of rows of 16."""


@pytest.mark.parametrize("name", SCALED)
def test_moments_that_are_scaled_stay_as_they_lie(name):
    us, megabytes, optimizer = SCALED[name]
    found = _estimate(16, optimizer=optimizer)
    assert found.peak_bytes / 1e6 < 1.4 * megabytes
    assert found.compute_s * 1e6 < 2.0 * us
