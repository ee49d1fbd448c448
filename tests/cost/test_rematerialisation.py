"""Near the limit of memory, does the simulator compute again what the compiler would, and only that?"""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, plain_device, simulated

N = 1024
SQUARE = 4.0 * N * N
LAYERS = 6


def chain(x, w):
    """Squares that are all made from an argument first, and read one after the other later."""
    squares = [jnp.sort(x, axis=i % 2) for i in range(LAYERS)]
    for square in squares:
        w = jnp.sort(w @ square)
    return w


def run(hbm_squares: float, **options):
    device = plain_device(f"holds {hbm_squares} squares", hbm_bytes=hbm_squares * SQUARE)
    return simulated(chain, f32(N, N), f32(N, N), device=device, **options)


def test_with_memory_to_spare_nothing_changes():
    plain, again = run(1000.0), run(1000.0, rematerialise=True)
    assert (again.peak_bytes, again.compute_s) == (plain.peak_bytes, plain.compute_s)


def test_by_default_a_step_takes_what_its_schedule_takes():
    assert run(8.0).peak_bytes == run(1000.0).peak_bytes


def test_what_waits_is_computed_again_until_the_peak_is_below_the_limit():
    plain = run(1000.0)
    squares = plain.peak_bytes / SQUARE
    short = run(squares - 1.0, rematerialise=True)
    assert short.peak_bytes <= 0.95 * (squares - 1.0) * SQUARE
    assert plain.compute_s < short.compute_s < 1.5 * plain.compute_s
    assert short.collective_s == plain.collective_s


def test_the_less_memory_there_is_the_longer_it_takes():
    squares = run(1000.0).peak_bytes / SQUARE
    seconds = [run(squares - less, rematerialise=True).compute_s for less in (0.0, 1.0, 2.0)]
    assert seconds == sorted(seconds)


def test_arguments_are_not_computed_again_so_that_too_little_stays_too_little():
    tiny = run(1.0, rematerialise=True)
    assert tiny.peak_bytes > 2 * SQUARE
    assert tiny.peak_bytes == pytest.approx(tiny.argument_bytes + tiny.output_bytes + tiny.live.max())
