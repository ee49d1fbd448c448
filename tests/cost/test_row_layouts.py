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


def _updated(name: str, width: int):
    """An update of a table by rows that come from outside, of a table and a moment, which it changes in place."""

    def step(table, moment, rows, added):
        gradient = jnp.zeros_like(table).at[rows].add(added)
        if name == "sum":
            return table - 0.01 * gradient, moment
        if name in ("momentum", "mean"):
            moment = (gradient if name == "momentum" else 0.1 * gradient) + 0.9 * moment
            return table - 0.01 * moment, moment
        squared = gradient * gradient
        moment = moment + squared if name == "adagrad" else 0.9 * moment + 0.1 * squared
        return table - 0.01 * gradient / jnp.sqrt(moment + 1e-8), moment

    table, added = (jax.ShapeDtypeStruct((n, width), jnp.float32) for n in (ROWS, 8192))
    args = table, table, jax.ShapeDtypeStruct((8192,), jnp.int32), added
    return ap.jit(step, ap.Mesh({"b": 1}, device="tpu_v5e"), [], donate_argnums=(0, 1)).lower(*args).estimate


@pytest.mark.parametrize(
    ("name", "width", "compiled_us"),
    [
        ("sum", 16, 394.0),
        ("sum", 64, 469.9),
        ("momentum", 16, 408.0),
        ("momentum", 48, 531.3),
        ("momentum", 64, 582.5),
        ("mean", 48, 707.2),
        ("mean", 64, 759.3),
        ("adagrad", 64, 865.9),
        ("rms", 64, 866.1),
    ],
)
def test_an_update_that_lies_in_rows_takes_what_the_compiler_says(name: str, width: int, compiled_us: float):
    assert 0.85 < 1e6 * _updated(name, width).compute_s / compiled_us < 1.1


@pytest.mark.parametrize(("name", "width", "compiled_mb"), [("mean", 16, 13.4), ("rms", 48, 40.0)])
def test_the_more_is_computed_the_sooner_what_is_added_is_copied(name: str, width: int, compiled_mb: float):
    assert _updated(name, width).peak_bytes / 1e6 == pytest.approx(compiled_mb, rel=0.02)
