"""Do collectives of images work in the order that convolutions have them in memory, and on these alone?"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.spmd.redistribution.emission import emission, reordered
from autopart.spmd.verify_local import verify
from tests.redistribution.cases import planned

MESH = {"batch": 4, "model": 2}
IMAGES = jax.ShapeDtypeStruct((16, 32, 32, 128), jnp.float32)
KERNEL = jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.float32)


def convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def lowered(fun, x, w, features, device):
    """Features are summed over in parts, and images come in tiles of their second dim."""
    tiles = {"x": features[0], "w": features[1]}, {"outputs": 1}
    tactics = [ap.ManualPartition(each, axis="model") for each in tiles]
    return ap.jit(fun, ap.Mesh(MESH, device=device), tactics).lower(x, w)


def scattered(low):
    """What the program's reduce_scatter leaves, and along which dim."""
    _, text = low.as_text("stablehlo").split('"stablehlo.reduce_scatter"')
    left, dim = re.search(r"-> tensor<([\dx]+)xf32>", text), re.search(r"scatter_dimension = (\d+)", text)
    return left[1], int(dim[1])


def test_images_are_scattered_with_their_dims_of_space_in_front():
    low = lowered(convolved, IMAGES, KERNEL, (3, 2), "tpu_v5e")
    assert scattered(low) == ("16x32x16x128", 0)
    verify(low.program)


@pytest.mark.parametrize("device", ["h100", "cpu_host", None])
def test_devices_whose_collectives_do_not_work_in_place_keep_the_order(device):
    assert "16x32x16x128" not in lowered(convolved, IMAGES, KERNEL, (3, 2), device).as_text("stablehlo")


def test_what_no_convolution_reads_or_leaves_keeps_its_order():
    def product(x, w):
        return jnp.einsum("nhwc,cd->nhwd", x, w)

    low = lowered(product, IMAGES, jax.ShapeDtypeStruct((128, 128), jnp.float32), (3, 0), "tpu_v5e")
    assert scattered(low) == ("16x16x32x128", 1)


@pytest.mark.parametrize(
    ("source", "order", "turned"),
    [
        ("[4, 3{x}6, 5, 2]", (1, 2, 0, 3), (6, 5, 4, 2)),
        ("[4, 6, 3{x}6, 2]", (1, 2, 0, 3), (6, 6, 4, 2)),
        ("[2, 3{x}6, 5, 7]", (1, 2, 3, 0), (6, 5, 7, 2)),
    ],
)
def test_a_gather_in_another_order_leaves_the_same(source, order, turned):
    target = re.sub(r"3\{x\}", "", source)
    (step,) = planned(source, target, {"x": 2}).steps
    whole = np.arange(np.prod(step.target.shape)).reshape(step.target.shape)
    plain = emission(step)
    how, (dim,) = reordered(plain, step.source.local_shape, order), plain.dims.values()
    assert how.shape == turned
    tiles = [tile.reshape(how.before.read).transpose(how.before.order) for tile in np.split(whole, 2, dim)]
    left = np.concatenate(tiles, how.dims["all_gather"]).reshape(how.after.read).transpose(how.after.order)
    assert np.array_equal(left, whole)


@pytest.mark.parametrize("source", ["[2{x}4, 6, 5, 2]", "[4, 6, 5, 1{x}2]"])
def test_images_and_features_are_gathered_as_they_are(source):
    target = re.sub(r"\d\{x\}", "", source)
    (step,) = planned(source, target, {"x": 2}).steps
    assert reordered(emission(step), step.source.local_shape, (1, 2, 0, 3)) == emission(step)
