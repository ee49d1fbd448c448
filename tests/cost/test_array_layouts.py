"""Which dims lie along the lanes of what convolutions leave, and of what attention reads?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from autopart.costmodel.compiled.local.unit_tiles import share_filled
from tests.cost.programs import simulated

BF16_BYTES, LANES = 2, 128


def bf16(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def held_bytes(run, kind):
    """Of what the last op of a kind leaves, on one device."""
    program = run.local.program
    op = max(op for op in range(program.op_count) if program.spec(op).kind == kind)
    return float(run.arrays.values["native_bytes"][program.result_ptr[op]])


def convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize(
    ("images", "features", "held"), [(32, 64, 32 * LANES), (32, 128, 32 * 128), (128, 64, 128 * 64), (16, 3, 4 * LANES)]
)
def test_features_or_images_lie_along_the_lanes_of_what_a_convolution_leaves(images, features, held):
    """16 images of 3 features: rows of a tile below a full one are padded to a power of two."""
    run = simulated(convolved, bf16(images, 56, 56, 32), bf16(3, 3, 32, features), device="tpu_v5e")
    assert held_bytes(run, "convolution") == BF16_BYTES * 56 * 56 * held


def normal_in_groups(x, w):
    """With its groups written: they are read by two that do not run in one kernel."""
    grouped = convolved(x, w).reshape(8, 16, 16, 16, 20)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    return jax.lax.sort(grouped - mean, dimension=4).reshape(8, 16, 16, 320)


def split_space(x, w):
    return jnp.tanh(convolved(x, w).reshape(8, 4, 4, 16, 320))


def gradient_of_a_stem(images, w):
    def loss(w):
        return (convolved(images.astype(jnp.bfloat16), w).astype(jnp.float32) ** 2).sum()

    return jax.grad(loss)(w)


@pytest.mark.parametrize(
    ("table", "indices", "held"),
    [((4096, 16), "r", 4096 * LANES), ((2048, 9, 3), "jr", 2048 * 9 * 4), ((2048, 9), "jr", 2048 * 16)],
)
def test_rows_that_are_added_to_lie_along_the_lanes_unless_the_windows_are_longer_along_another_dim(
    table, indices, held
):
    """A row of a table each; a joint of every robot of a batch, with its robots along the lanes."""

    def at(i):
        return (slice(None), i) if "j" in indices else (i,)

    def added(x, rows, i):
        return x.at[at(i)].add(rows)

    given, i = jax.ShapeDtypeStruct(table, jnp.float32), jax.ShapeDtypeStruct((3,), jnp.int32)
    rows = jax.eval_shape(lambda x, i: x[at(i)], given, i)
    assert held_bytes(simulated(added, given, rows, i, device="tpu_v5e"), "scatter") == 4 * held


TILE = (32, LANES, LANES)


@pytest.mark.parametrize(
    ("features", "taps", "made", "filled"),
    [
        (160, 3, 128, 480 / 512),
        (160, 3, 64, 160 / 256 * 64 / 128),
        (160, 1, 128, 160 / 256),
        (32, 3, 128, 96 / 128),
        (64, 3, 128, 192 / 256),
        (64, 3, 48, 64 / 128 * 48 / 128),
        (80, 3, 128, 80 / 128),
        (3, 256, 128, 1),
        (3, 9, 128, 27 / 128),
    ],
)
def test_neighbours_lie_beside_each_other_in_a_tile_of_the_matrix_unit(features, taps, made, filled):
    """Not those of 80 features, nor where the kernel has what is summed over along its lanes: of 64 for 48, of 160 for
    64."""
    found = share_filled(float(features), float(made), 0.0, taps, False, False, True, TILE)
    assert found == pytest.approx(filled)


@pytest.mark.parametrize(
    ("features", "made", "tiles"),
    [(64, 64, 9), (48, 48, 9), (32, 32, 9), (64, 32, 9), (32, 64, 3), (64, 80, 6), (160, 96, 12)],
)
def test_neighbours_in_the_gradient_of_an_input_lie_apart_where_features_are_as_many(features, made, tiles):
    """As libtpu 0.0.51 counts windows of 3 x 3 on v3 and v5e; `features` are of the gradient that is read."""
    share = share_filled(float(features), float(made), 0.0, 3, False, True, True, TILE)
    assert 9 * features * made / LANES**2 / share == pytest.approx(tiles)


def votes(x, w):
    """A product for each of 1152 capsules, sorted so that it is written."""
    seen = jnp.einsum("nid,ijde->nije", x, w)
    return jax.lax.sort(seen, dimension=3)


def test_a_transpose_leaves_the_layout_of_what_it_reads():
    """Of f32[1152,32,5,16] tiles are 16 by 32 images, padded to 128, as libtpu 0.0.51 has them on v3; by itself
    f32[32,1152,5,16] would have 1152 along the lanes and be padded by nothing."""
    given = jax.ShapeDtypeStruct((32, 1152, 8), jnp.float32), jax.ShapeDtypeStruct((1152, 5, 8, 16), jnp.float32)
    run = simulated(votes, *given, device="tpu_v3")
    assert held_bytes(run, "transpose") == held_bytes(run, "dot_general") == 4 * 1152 * 5 * 16 * LANES


def test_a_transpose_of_dims_of_one_element_hands_its_layout_on():
    def turned(x, y):
        scores = jnp.einsum("ihqd,ihkd->ihqk", x, y)
        return jax.lax.sort(jnp.transpose(scores, (3, 2, 0, 1)), dimension=0)

    given = jax.ShapeDtypeStruct((1, 3, 49, 32), jnp.float32), jax.ShapeDtypeStruct((1, 3, 49, 32), jnp.float32)
    run = simulated(turned, *given, device="tpu_v5e")
    assert held_bytes(run, "transpose") == held_bytes(run, "dot_general") == 4 * 3 * 56 * LANES


def remembered(images, w):
    """A step of gradients of a cell that gates what it remembers: 64 of 256 features each."""

    def turn(state, image):
        hidden, memory = state
        write, keep, show, new = jnp.split(convolved(jnp.concatenate([image, hidden], -1), w), 4, -1)
        memory = jax.nn.sigmoid(keep) * memory + jax.nn.sigmoid(write) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(show) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zeros = jnp.zeros((*images.shape[1:-1], 64))
    return (jax.lax.scan(turn, (zeros, zeros), images)[1] ** 2).sum()


def test_stacks_of_images_lie_as_the_images_do():
    """64 features that were 64 of 256 fill half of the lanes, though 128 images would fill them; stacks of a loop's
    turns lie so, too: `f32[10,128,8,64,64]{4,1,3,2,0:T(8,128)}` of libtpu 0.0.51 on v5e."""
    given = (
        jax.ShapeDtypeStruct((10, 128, 8, 64, 64), jnp.float32),
        jax.ShapeDtypeStruct((3, 3, 128, 256), jnp.float32),
    )
    run = simulated(jax.grad(remembered, 1), *given, device="tpu_v5e")
    program, held = run.local.program, run.arrays.values["native_bytes"]
    images = [v for v in range(program.value_count) if program.type_of(v).shape == (10, 128, 8, 64, 64)]
    carried = [float(held[v]) for v in images if program.spec(int(program.value_op[v])).kind == "carry"]
    whole = 4.0 * 10 * 128 * 8 * 64 * LANES
    assert carried.count(whole) > 8
    assert set(carried) == {whole}, "with the images that are given: the loop's body decides"
