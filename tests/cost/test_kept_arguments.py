"""An argument that is changed, and that the caller keeps, is copied first: seconds and memory.

Microseconds by libtpu 0.0.51 for v5e:2x4, on one device, which no test compiles again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

V5E = ap.Mesh({"x": 1}, device="tpu_v5e")
WHERE = jax.ShapeDtypeStruct((), jnp.int32)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def put(cache, row, where):
    return jax.lax.dynamic_update_slice(cache, row, (0, where, 0))


def add(table, rows, where):
    return table.at[where].add(rows)


CHANGED = {
    "cache": (408.5, put, f32(64, 4096, 128), f32(64, 1, 128), WHERE),
    "table": (406.7, add, f32(65_536, 512), f32(1024, 512), jax.ShapeDtypeStruct((1024,), jnp.int32)),
}


def estimate(name: str, donated: tuple[int, ...]):
    _, function, *given = CHANGED[name]
    return ap.jit(function, V5E, [], donate_argnums=donated).lower(*given).estimate


@pytest.mark.parametrize("name", CHANGED)
def test_what_the_caller_keeps_is_copied(name):
    assert estimate(name, ()).compute_s * 1e6 == pytest.approx(CHANGED[name][0], rel=0.1)


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_donated_changes_where_it_lies(name):
    kept, donated = estimate(name, ()), estimate(name, (0,))
    assert donated.compute_s < 0.05 * kept.compute_s
    assert donated.peak_bytes < 0.55 * kept.peak_bytes
