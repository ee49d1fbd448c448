"""Do windows that are looked up by index take the room and the time that the TPU compiler says?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap

ROWS, LOOK_UPS = 16_384, 131_072


def _estimate(window: tuple[int, ...], device: str, step):
    given = [((ROWS, *window), jnp.float32), ((LOOK_UPS,), jnp.int32), ((LOOK_UPS,), jnp.float32)]
    args = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in given]
    return ap.jit(step, ap.Mesh({"b": 8}, device=device), []).lower(*args).estimate


def _scaled(table, rows, weights):
    return table[rows] * weights.reshape(weights.shape + (1,) * (table.ndim - 1))


def _summed(table, rows, weights):
    return jnp.exp(_scaled(table, rows, weights)).sum(-1)


def _added(table, rows, weights):
    return jnp.zeros_like(table).at[rows].add(_scaled(table, rows, weights))


@pytest.mark.parametrize(
    ("device", "window", "summed_us", "added_us", "temporary_mb"),
    [
        ("tpu_v5e", (4, 32), 1446, 1961, 268),
        ("tpu_v5e", (8, 16), 1839, 1758, 537),
        ("tpu_v5e", (16, 16), 3749, 4443, 1208),
        ("tpu_v3", (2, 16), 2188, 2511, 152),
        ("tpu_v3", (4, 32), 2461, 3209, 302),
        ("tpu_v3", (16, 16), 5837, 6269, 1208),
    ],
)
def test_a_matrix_takes_its_layout_tiles(device, window, summed_us, added_us, temporary_mb):
    """The compiler counts no cycles for the look-ups themselves, so that the estimate is above."""
    summed, added = (_estimate(window, device, step) for step in (_summed, _added))
    assert 0.85 < summed.peak_bytes / 1e6 / temporary_mb < 1.4
    assert 0.85 < 1e6 * summed.compute_s / summed_us < 2.2
    assert 0.85 < 1e6 * added.compute_s / added_us < 2.2


def test_short_rows_lie_along_the_lanes():
    taken = _estimate((16,), "tpu_v3", _summed).peak_bytes
    assert 0.85 < taken / 76e6 < 1.4


def test_rows_that_fill_the_lanes_do_not_where_they_are_divided():
    """A device has 32 of 128 features of each edge, and an edge takes a row of lanes: 164 MB, as if it had all."""

    def summed(nodes, senders, receivers):
        return jnp.zeros_like(nodes).at[receivers].add((2 * nodes)[senders])

    edges, nodes = jax.ShapeDtypeStruct((320_000,), "i4"), jax.ShapeDtypeStruct((20_000, 128), "f4")
    features = ap.ManualPartition({"nodes": 1}, axis="f")
    lowered = ap.jit(summed, ap.Mesh({"f": 4}, device="tpu_v5e"), [features]).lower(nodes, edges, edges)
    assert not any(lowered.metadata.tactics[-1].collectives.values())
    assert 160e6 < lowered.estimate.peak_bytes < 200e6


@pytest.mark.parametrize("window", [(16,), (8, 16)])
def test_without_layout_tiles_a_window_takes_its_bytes(window):
    elements = LOOK_UPS + ROWS
    for size in window:
        elements *= size
    assert _estimate(window, "h100", _summed).peak_bytes < 1.5 * 4 * elements


def test_a_bias_that_is_transposed_at_once_lies_as_any_array():
    def biased(table, places, scores):
        return jax.nn.softmax(scores + table[places].transpose(2, 0, 1))

    args = [jax.ShapeDtypeStruct(*given) for given in (((32, 8), "f4"), ((512, 512), "i4"), ((4, 8, 512, 512), "f4"))]
    taken = ap.jit(biased, ap.Mesh({"b": 8}, device="tpu_v3"), []).lower(*args).estimate.peak_bytes
    assert taken < 100e6, "scores are 34 MB, and rows of 8 along the lanes would be 134 MB"
