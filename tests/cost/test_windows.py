"""Do convolutions take what the TPU compiler says where their windows fill little of the matrix unit?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from tests.cost.programs import copies_s, f32, lowered

CLOCKS_HZ = {"tpu_v5e": 1.5e9, "tpu_v3": 0.94e9}


def bf16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def _convolved(x, w, stride, groups=1):
    numbers = ("NHWC", "HWIO", "NHWC") if x.ndim == 4 else ("NWC", "WIO", "NWC")
    strides = (stride,) * (x.ndim - 2)
    return jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups)


@pytest.mark.parametrize(
    ("device", "images", "window", "cycles"),
    [
        ("tpu_v5e", (8, 64, 64, 128), (3, 3, 128, 256), 155_500),
        ("tpu_v5e", (16, 32, 32, 256), (3, 3, 256, 512), 155_500),
        ("tpu_v5e", (64, 32, 32, 128), (3, 3, 128, 256), 92_100),
        ("tpu_v5e", (16, 32, 32, 256), (4, 4, 256, 256), 139_000),
        ("tpu_v5e", (16, 32, 32, 256), (5, 5, 256, 256), 212_900),
        ("tpu_v5e", (8, 1024, 256), (3, 256, 512), 104_300),
        ("tpu_v5e", (32, 1024, 256), (3, 256, 512), 124_500),
        ("tpu_v5e", (16, 1024, 512), (4, 512, 512), 272_300),
        ("tpu_v3", (2, 1024, 256), (3, 256, 512), 794_100),
        ("tpu_v3", (32, 1024, 256), (3, 256, 512), 802_200),
        ("tpu_v3", (8, 32, 32, 256), (3, 3, 256, 256), 599_300),
        ("tpu_v3", (64, 32, 32, 256), (3, 3, 256, 256), 610_600),
    ],
)
def test_rows_are_images_alone_where_their_places_are_apart(device, images, window, cycles):
    """The gradient of images that a convolution reads with a stride of 2: cycles of the convolution alone, by libtpu
    0.0.51."""

    def gradient(y, w):
        read = jnp.zeros(images, y.dtype)
        return jnp.tanh(jax.vjp(lambda x: _convolved(x, w, 2), read)[1](jnp.tanh(y))[0])

    made = (images[0], *(n // 2 for n in images[1:-1]), window[-1])
    on = ap.Mesh({"x": 1}, device=device)
    run = lowered(gradient, bf16(*made), bf16(*window), mesh=on).estimate.simulation
    found = CLOCKS_HZ[device] * (run.compute_s - copies_s(run))
    assert 0.95 < found / cycles < 1.2


@pytest.mark.parametrize(
    ("size", "shape", "alone", "masked"),
    [
        (3, (32, 28, 28, 512), 241_500, 293_300),
        (3, (128, 28, 28, 128), 240_800, 292_500),
        (5, (32, 28, 28, 512), 640_500, 690_900),
    ],
)
def test_what_the_windows_of_each_feature_end_with_comes_on_top(size, shape, alone, masked):
    """A mask and two sums, of bf16; cycles by libtpu 0.0.51."""

    def step(x, w, z):
        made = _convolved(x, w, 1, shape[-1]) * jax.vmap(jax.grad(jax.nn.hard_swish))(z.reshape(-1)).reshape(z.shape)
        return made, made.astype(jnp.float32).sum((0, 1, 2)), (made * z).astype(jnp.float32).sum((0, 1, 2))

    w = bf16(size, size, 1, shape[-1])
    plain = lowered(lambda x, w: _convolved(x, w, 1, shape[-1]), bf16(*shape), w).estimate
    more = lowered(step, bf16(*shape), w, bf16(*shape)).estimate
    assert CLOCKS_HZ["tpu_v5e"] * plain.compute_s == pytest.approx(alone, rel=0.1)
    assert CLOCKS_HZ["tpu_v5e"] * more.compute_s == pytest.approx(masked, rel=0.2)


def test_images_are_computed_in_whole_tiles():
    """16 features of 32 images fill 32 of 128 lanes, 64 features half of them."""

    def step(y, w):
        found = _convolved(y, w, 1)
        made = jnp.tanh(found) * jnp.exp(found)
        return made, made.sum((0, 1, 2)), (found * made).sum((0, 1, 2))

    narrow, wide = (
        lowered(step, f32(32, 48, 48, 64), f32(1, 1, 64, features)).estimate.simulation.graph.nodes["vector_flop"]
        for features in (16, 64)
    )
    assert narrow.sum() == pytest.approx(wide.sum() / 2, rel=0.1)
