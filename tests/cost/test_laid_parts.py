"""How long does it take to lay parts beside each other inside a kernel? Cycles by libtpu 0.0.51, all arrays in f32."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, simulated

CLOCK_HZ = {"tpu_v3": 0.94e9, "tpu_v5e": 1.5e9}


def summed(dim):
    return lambda *parts: jnp.concatenate(parts, dim).sum((0, 1))


def scaled(dim):
    return lambda *parts: jnp.concatenate(parts, dim) * 2 + 1


def parts_of(widths, dim):
    """Rows of 512 x 64, or 512 of rows of 128, or rows of 64 x 128."""
    return [f32(512, 64, w) if dim == -1 else f32(512, w, 128) if dim == -2 else f32(w, 64, 128) for w in widths]


@pytest.mark.parametrize(
    ("reader", "widths", "dim", "v5e", "v3"),
    [
        (summed, (64, 64), -1, 97532, 96288),
        (summed, (96, 32), -1, 106244, 105592),
        (summed, (32, 32, 32, 32), -1, 135912, 134672),
        (summed, (64, 64, 64, 64), -1, 268757, 265504),
        (scaled, (32, 32, 32), -2, 176098, 172160),
        (scaled, (64, 64), -2, 194000, 190528),
        (scaled, (256, 256), -3, 101032, 115416),
        (scaled, (128, 128, 128, 128), -3, 136040, None),
        (summed, (128, 128, 128, 128), -1, 305552, 305280),
        (scaled, (128, 128, 128, 128), -1, 309564, 305824),
    ],
)
def test_parts_take_as_long_as_the_compiler_says(reader, widths, dim, v5e, v3):
    """The last two fill whole rows of lanes: these take as long as one array of their size does. Four parts along the
    first dim take 190,400 cycles on v3, 0.75 of it here."""
    for device, cycles in (("tpu_v5e", v5e), ("tpu_v3", v3)):
        run = simulated(reader(dim), *parts_of(widths, dim), device=device)
        assert cycles is None or run.compute_s * CLOCK_HZ[device] == pytest.approx(cycles, rel=0.13)


def test_two_sums_of_the_same_parts_lay_them_out_once():
    def sums(how):
        def f(*parts):
            x = jnp.concatenate([jnp.tanh(part) for part in parts], -1)
            return [of.sum((0, 1)) for of in (x, x * x)[:how]]

        return simulated(f, *parts_of((32, 32, 32, 32), -1), device="tpu_v5e").compute_s

    assert sums(1) < sums(2) < 1.1 * sums(1)
