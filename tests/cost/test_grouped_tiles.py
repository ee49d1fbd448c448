"""Do convolutions in groups take what the TPU compiler says, a tile of the matrix unit for each group?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.cost.programs import copies_s, f32, simulated

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
        run = simulated(step, *given, device="tpu_v5e")
        found = CLOCK_HZ * (run.compute_s - copies_s(run))
        assert 0.65 < found / counted < 1.3, step.__name__


def _grouped(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS, feature_group_count=16)


@pytest.mark.parametrize(
    ("images", "features", "alone", "copied"),
    [
        (64, 8, (33681, 37225, 33681), (65217, 37225, 64725)),
        (8, 16, (11000, 11432, 11000), (30680, 30938, 13492)),
        (16, 16, (18810, 28680, 14368), (47031, 48186, 25401)),
        (64, 16, (64044, 92532, 64044), (117300, 112038, 100112)),
        (8, 32, (18568, 19432, 18568), (22962, 44674, 22591)),
        (32, 32, (64044, 92532, 64044), (102014, 117774, 101643)),
        (128, 32, (229888, 227840, 229888), (589847, 411082, 590771)),
        (16, 64, (64044, 92352, 57472), (109751, 118638, 101092)),
        (64, 64, (239532, 347220, 239532), (381779, 373506, 379692)),
    ],
)
def test_groups_of_features_that_fill_a_tile_are_one(images, features, alone, copied):
    """Cycles of the convolutions of 16 groups, as they are emitted, alone and with the copies of what they read and
    leave, some of them at the program's edge; forward and both gradients, by libtpu 0.0.51 on v5e."""
    x, w = f32(images, ROWS, ROWS, 16 * features), f32(3, 3, features, 16 * features)

    def by_kernel(x, w, y):
        return jax.vjp(lambda w: _grouped(x, w), w)[1](y)

    def by_images(x, w, y):
        return jax.vjp(lambda x: _grouped(x, w), x)[1](y)

    steps = (_grouped, (x, w)), (by_kernel, (x, w, x)), (by_images, (x, w, x))
    for (step, given), least, most in zip(steps, alone, copied, strict=True):
        run = simulated(step, *given, device="tpu_v5e")
        found = CLOCK_HZ * (run.compute_s - copies_s(run))
        assert 0.6 * least < found < 1.3 * most, step.__name__
