"""Where is an array copied because a use asks for another layout, what does the copy take, and who shares it?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autopart.costmodel.compiled.layout_assignment.assignment import LayoutAssignment
from autopart.costmodel.hardware.devices import device
from tests.cost.programs import copies_s, f32, simulated

LANES, BF16_BYTES = 128, 2


def assigned(run):
    local = run.local
    sizes, tile = np.array(local.mesh.axis_sizes, np.int64), device(local.mesh.device).layout_tile
    return LayoutAssignment.of(local.program)(local.native, sizes, tile)


def copied(run):
    """Kind of op -> elements of the copies that are made for its operands."""
    program, found = run.local.program, assigned(run).copied
    return {(program.spec(int(program.use_op[use])).kind, abs(found[use])) for use in np.flatnonzero(found)}


def stem(x, w):
    return jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def test_given_images_are_copied_once_for_a_convolution_and_the_gradient_of_its_kernel():
    """f32[8,256,256,3]{2,1,3,0} is read as bf16 with images and features inside tiles."""

    def step(x, w):
        left, back = jax.vjp(lambda w: stem(x, w), w)
        return left, back(left)

    run = simulated(step, f32(8, 256, 256, 3), f32(7, 7, 3, 64), device="tpu_v3")
    (copy,) = copied(run)
    assert copy == ("convolution", 256 * 256 * 4 * LANES)
    assert run.arrays.values["copy_bytes"].max() == copy[1] * BF16_BYTES, "kept until the gradient has read it"


def test_a_copy_that_one_use_reads_lives_as_long_as_its_kernel():
    run = simulated(stem, f32(8, 256, 256, 3), f32(7, 7, 3, 64), device="tpu_v3")
    assert run.arrays.values["copy_bytes"].max() == 0
    assert run.arrays.ops["beside_bytes"].max() == 256 * 256 * 4 * LANES * BF16_BYTES


def heads(x, w, keys):
    queries = jnp.einsum("bsm,mhd->bshd", x, w)
    return jnp.einsum("bqhd,bkhd->bhqk", queries, keys)


@pytest.mark.parametrize(("images", "are_copied"), [(128, True), (96, False)])
def test_products_along_batch_dims_ask_for_the_dims_of_each_matrix(images, are_copied):
    """128 images fill the lanes, so queries lie along them, and are copied for the scores of each image and head."""
    run = simulated(heads, f32(images, 196, 1024), f32(1024, 16, 64), f32(images, 196, 16, 64), device="tpu_v5e")
    assert ("dot_general" in {kind for kind, _ in copied(run)}) == are_copied
    assert (copies_s(run) > 0) == are_copied


def test_a_product_reads_any_order_of_one_dim_of_rows():
    def product(x, w):
        return jnp.tanh(x @ w) @ w

    assert not copied(simulated(product, f32(4096, 512), f32(512, 512), device="tpu_v5e"))


@pytest.mark.parametrize(("row", "rows_are_copied"), [(64, True), (LANES, False), (2, False)])
def test_a_look_up_asks_for_rows_unless_they_fill_the_lanes_or_few_of_them(row, rows_are_copied):
    run = simulated(lambda t, i: t[i], f32(100_000, row), jax.ShapeDtypeStruct((512,), jnp.int32), device="tpu_v3")
    assert (copied(run) == {("gather", 100_000 * LANES)}) == rows_are_copied


def test_one_element_of_each_row_is_no_look_up_of_rows():
    def picked(x, i):
        return jnp.take_along_axis(jnp.tanh(x), i[:, None], 1)

    run = simulated(picked, f32(100_000, 64), jax.ShapeDtypeStruct((100_000,), jnp.int32), device="tpu_v3")
    assert not copied(run)


def test_the_gradient_of_a_table_is_summed_in_rows_and_copied_into_the_order_of_its_table():
    def step(table, i, dy):
        gradient = jax.vjp(lambda table: table[i], table)[1](dy)[0]
        return table - 0.1 * gradient

    given = f32(200_000, 16), jax.ShapeDtypeStruct((512,), jnp.int32), f32(512, 16)
    run = simulated(step, *given, device="tpu_v3", donate=(0,))
    assert np.unique(assigned(run).left).tolist() == [-200_000.0 * LANES, 0.0], "lanes become rows"
    assert run.peak_bytes > 4 * 200_000 * LANES


def test_tiles_are_turned_for_nothing_where_an_array_and_its_copy_are_on_the_chip():
    def seconds(images, where):
        given = f32(images, 16, 1024), f32(1024, 8, 64), f32(images, 16, 8, 64)
        run = simulated(heads, *given, device=where)
        assert copied(run)
        return copies_s(run)

    assert seconds(128, "tpu_v5e") == 0 < seconds(2048, "tpu_v5e")
    assert seconds(128, "tpu_v3") > 0


def test_without_layout_tiles_nothing_is_copied():
    run = simulated(stem, f32(8, 256, 256, 3), f32(7, 7, 3, 64), device="a100_40gb")
    assert copies_s(run) == 0
