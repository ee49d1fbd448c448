"""Do convolutions in groups take what the TPU compiler says, a tile of the matrix unit for each group?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import f32, simulated

ROWS, CLOCK_HZ = 14, 1.5e9
NUMBERS = ("NHWC", "HWIO", "NHWC")


def _of_each_task(x, w):
    def of_one(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS)

    return jax.vmap(of_one)(x, w)


def _summed(x, w):
    return _of_each_task(x, w).sum((1, 2, 3))


def _kernel_gradient(x, w, y):
    return jax.vjp(lambda w: _of_each_task(x, w), w)[1](y)


def _image_gradient(x, w, y):
    return jax.vjp(lambda x: _of_each_task(x, w), x)[1](y)[0].sum((1, 2, 3))


@pytest.mark.parametrize(
    ("tasks", "images", "read", "made", "cycles"),
    [
        (4, 16, 64, 64, (37418, 24550, 33681)),
        (4, 64, 64, 64, (120680, 68456, 128821)),
        (4, 100, 64, 64, (144832, 123571, 131376)),
        (4, 256, 64, 64, (283528, 239016, 248384)),
        (4, 100, 32, 32, (60468, 64119, 71349)),
        (4, 32, 32, 32, (60468, 37900, 71349)),
        (4, 32, 96, 96, (71349, 51607, 71349)),
        (4, 32, 192, 192, (200994, 188386, 234907)),
        (4, 100, 64, 128, (185480, 111579, 260011)),
        (16, 32, 64, 64, (231696, 134464, 243765)),
    ],
)
def test_windows_of_each_task_fill_tiles_of_their_own(tasks, images, read, made, cycles):
    """Cycles of the convolutions alone, forward and both gradients, by libtpu 0.0.51 on v5e; 0.69 to 1.16 of them."""
    x, y = (jax.ShapeDtypeStruct((tasks, images, ROWS, ROWS, features), jnp.bfloat16) for features in (read, made))
    w = jax.ShapeDtypeStruct((tasks, 3, 3, read, made), jnp.bfloat16)
    steps = (_summed, (x, w)), (_kernel_gradient, (x, w, y)), (_image_gradient, (x, w, y))
    for (step, given), counted in zip(steps, cycles, strict=True):
        found = CLOCK_HZ * simulated(step, *given, device="tpu_v5e").compute_s
        assert 0.65 < found / counted < 1.3, step.__name__


def _grouped(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS, feature_group_count=16)


@pytest.mark.parametrize(
    ("images", "features", "cycles"),
    [
        (16, 4, (63560, 0, 63560)),
        (64, 4, (63560, 0, 63560)),
        (256, 4, (122011, 0, 122011)),
        (8, 8, (57288, 19232, 57472)),
        (64, 8, (63560, 56960, 57472)),
        (8, 16, (38276, 30976, 57472)),
        (16, 16, (109467, 35304, 114944)),
        (64, 16, (122011, 113920, 114944)),
        (8, 32, (38276, 30976, 57472)),
        (32, 32, (162953, 59856, 229888)),
        (128, 32, (238217, 227840, 238217)),
        (16, 64, (84379, 59648, 114944)),
        (64, 64, (274624, 205728, 468105)),
    ],
)
def test_groups_of_features_fill_tiles_of_their_own(images, features, cycles):
    """Cycles of the convolutions alone of 16 groups, forward and both gradients, by libtpu 0.0.51 on v5e; 0: what is
    read takes longer. Forward, with features along the lanes, the compiler needs 0.6 to 0.95 of the rows."""
    x, w = f32(images, ROWS, ROWS, 16 * features), f32(3, 3, features, 16 * features)

    def by_kernel(x, w, y):
        return jax.vjp(lambda w: _grouped(x, w), w)[1](y)

    def by_images(x, w, y):
        return jax.vjp(lambda x: _grouped(x, w), x)[1](y)

    steps = (_grouped, (x, w)), (by_kernel, (x, w, x)), (by_images, (x, w, x))
    for (step, given), counted in zip(steps, cycles, strict=True):
        found = CLOCK_HZ * simulated(step, *given, device="tpu_v5e").compute_s
        assert counted == 0 or 0.63 < found / counted < 1.7, step.__name__


def test_what_a_group_leaves_fills_whole_lanes():
    """f32[28,28,32,4,16] with 16 images along 128 lanes: 51.4 MB by libtpu 0.0.51, for 6.4 MB of elements."""

    def step(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=NUMBERS, feature_group_count=32
        )  # fmt: skip

    x, w = f32(16, 28, 28, 128), f32(3, 3, 4, 128)
    found = simulated(step, x, w, device="tpu_v5e").peak_bytes
    assert found == pytest.approx(28 * 28 * 32 * 4 * 128 * 4 + 4 * (16 * 28 * 28 * 128 + 9 * 4 * 128), rel=0.05)
