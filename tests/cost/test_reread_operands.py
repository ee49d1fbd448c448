"""Does a product whose rows its kernel computes read a table again that the chip cannot hold, and no other?

Microseconds as libtpu 0.0.51 has them on v5e, which no test compiles again.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, simulated


def given(x: jax.Array, scale: jax.Array, table: jax.Array) -> jax.Array:
    return jnp.einsum("td,vd->tv", x, table)


def computed(x: jax.Array, scale: jax.Array, table: jax.Array) -> jax.Array:
    return given(x * scale, scale, table)


def beside_a_computed_table(x: jax.Array, scale: jax.Array, table: jax.Array) -> jax.Array:
    return given(x, scale, table * scale)


@pytest.mark.parametrize(
    ("program", "rows", "width", "words", "compiled_us"),
    [
        (given, 4096, 1024, 16384, 854),
        (computed, 4096, 1024, 16384, 854),
        (computed, 4096, 1024, 28672, 1471),
        (given, 4096, 1024, 32768, 1484),
        (computed, 4096, 1024, 32768, 3071),
        (beside_a_computed_table, 4096, 1024, 40960, 1844),
        (computed, 2048, 1024, 40960, 2052),
        (computed, 4096, 768, 32768, 1415),
        (computed, 4096, 768, 50304, 3486),
    ],
)
def test_a_table_is_read_again_where_it_does_not_fit_and_rows_are_computed(
    program: Callable[..., jax.Array], rows: int, width: int, words: int, compiled_us: float
):
    run = simulated(program, f32(rows, width), f32(width), f32(words, width), device="tpu_v5e")
    assert 0.8 < 1e6 * run.compute_s / compiled_us < 1.25


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_table_that_is_summed_over_its_long_dim_is_read_once(is_computed: bool):
    def program(scores: jax.Array, table: jax.Array) -> jax.Array:
        return (jnp.exp(scores) if is_computed else scores) @ table

    run = simulated(program, f32(4096, 40960), f32(40960, 1024), device="tpu_v5e")
    assert 1e6 * run.compute_s == pytest.approx(1946, rel=0.02)


@pytest.mark.parametrize("device", ["tpu_v2", "tpu_v3", "h100"])
def test_where_nothing_stays_on_the_chip_by_plan_it_is_all_the_same(device: str):
    shapes = f32(4096, 1024), f32(1024), f32(40960, 1024)
    one, other = (simulated(program, *shapes, device=device).compute_s for program in (given, computed))
    assert other == pytest.approx(one, rel=0.05)
