"""Does each value get the layout that XLA:TPU gives it, and does what is padded and spread follow from it?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.costmodel.compiled.tiled_layouts import row_major, text, tile_dims, tiled_elements
from experiments.simulator_accuracy import labels
from experiments.simulator_accuracy.layouts import assigned, compared
from experiments.simulator_accuracy.outside_pairs import outside_pairs
from experiments.simulator_accuracy.pairs import PAIRS

MESH = ap.Mesh({"d": 1}, device="tpu_v5e")


def layouts(function, *shapes, dtype=jnp.float32):
    """Kind of each op of a function that is traced at these shapes -> the layouts of their first results, in order."""
    local = ap.jit(function, MESH, []).lower(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)).program
    ours, program, found = assigned(local, "tpu_v5e"), local.program, {}
    for op in range(program.op_count):
        if len(program.results_of(op)):
            found.setdefault(program.spec(op).kind, []).append(ours[program.results_of(op)[0]])
    return found


def test_a_layout_is_written_as_hlo_does_and_fills_whole_tiles():
    dims = np.array([16.0, 2048.0, 100.0])
    assert text(int(row_major(3)), 3) == "{2,1,0}"
    assert tile_dims(row_major(3), 3, dims) == (2, 1)
    assert tiled_elements(dims, 3, 2, 1, 8, 128, 4.0) == 16 * 2048 * 128
    assert tiled_elements(dims, 3, 1, 0, 8, 128, 2.0) == 16 * 2048 * 100
    assert tiled_elements(np.array([3.0, 100.0]), 2, 1, 0, 8, 128, 4.0) == 4 * 128  # rows of a power of two


def test_a_product_writes_its_columns_along_the_lanes():
    assert layouts(lambda x, w: x @ w, (8, 64, 256), (256, 128))["dot_general"] == [(2, 1, 0)]


def test_a_product_of_few_columns_turns_where_that_pads_much_less():
    found = layouts(lambda x, w: jnp.einsum("bnf,nm->bfm", x, w), (16, 196, 1024), (196, 196))
    assert found["dot_general"] == [(1, 2, 0)]  # 196 along the lanes would be 256


def test_a_gradient_is_written_as_its_parameter_lies():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

    found = layouts(step, (256, 512), (1024, 256))
    assert found["subtract"][-1] == (1, 0)
    assert found["transpose"][-1] == (1, 0)


@pytest.mark.parametrize(("tokens", "features", "expected"), [(256, 64, (2, 3)), (16, 64, (3, 2)), (256, 128, (2, 3))])
def test_products_along_batch_dims_leave_matrices_in_the_order_that_pads_less(tokens, features, expected):
    found = layouts(
        lambda p, v: jnp.einsum("bhqk,bhkd->bhqd", p, v), (8, 12, tokens, tokens), (8, 12, tokens, features)
    )
    assert found["dot_general"][0][:2] == expected


def test_what_heads_read_lies_with_tokens_along_the_lanes():
    def scores(x, q, k):
        return jnp.einsum("bqhd,bkhd->bhqk", jnp.einsum("btf,fhd->bthd", x, q), jnp.einsum("btf,fhd->bthd", x, k))

    found = layouts(scores, (8, 256, 512), (512, 8, 64), (512, 8, 64))
    assert all(layout[:2] == (1, 3) for layout in found["dot_general"][:2])


@pytest.mark.parametrize(("images", "features", "minor"), [(32, 64, (3, 0)), (128, 64, (0, 3)), (16, 3, (0, 3))])
def test_a_convolution_leaves_features_and_images_inside_tiles(images, features, minor):
    def f(x, w):
        return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

    found = layouts(f, (images, 32, 32, 64), (3, 3, 64, features))
    assert found["convolution"][0][:2] == minor
    assert found["maximum"][0][:2] == minor


def test_a_reshape_that_splits_the_minor_dim_keeps_the_memory_and_one_that_cuts_tiles_does_not():
    found = layouts(lambda x: jnp.sin(jnp.sin(x).reshape(64, 8, 32)), (64, 256))
    assert found["reshape"] == [(2, 1, 0)]
    turned = layouts(lambda x, w: jnp.sin((x @ w).T.reshape(8, 32, 64)), (64, 128), (128, 256))
    assert turned["transpose"] == [(0, 1)]
    assert turned["reshape"] == [(1, 0, 2)]


def test_rows_of_a_table_lie_along_the_lanes():
    found = layouts(lambda t, i: t[i], (1000, 16), (64, 8), dtype=jnp.int32)
    assert found["gather"] == [(2, 1, 0)]


def test_a_part_that_would_fill_few_lanes_is_laid_anew():
    found = layouts(lambda x: jnp.sin(jnp.swapaxes(x, 1, 2)[:, :, :1] * 2), (4, 1024, 256))
    assert found["slice"][-1][0] != 2


FEW = ("dqn mcts 200 v3:4x4", "generator DP(batch,model) v3:4x4")


@pytest.mark.parametrize("pair", [p for p in (*PAIRS, *outside_pairs()) if p.name in FEW], ids=lambda pair: pair.name)
def test_nine_tenths_of_the_bytes_of_a_kept_pair_lie_as_the_compiler_lays_them(pair):
    share, differ = compared(labels.kept(pair.name), pair.lower().program, pair.on[1].device)
    assert share > 0.9, differ.most_common(5)


def test_features_that_are_split_into_groups_lie_along_the_lanes_as_they_did():
    def norm(x, w):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        groups = y.reshape(8, 16, 16, 20, 16)
        return (groups - jnp.mean(groups, (1, 2, 4), keepdims=True)).reshape(y.shape)

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 16, 16, 64), (3, 3, 64, 320))]
    run = ap.jit(norm, MESH, []).lower(*shapes).estimate.simulation
    program, split = run.local.program, run.arrays.values["native_bytes"]
    reshaped = [op for op in range(program.op_count) if program.spec(op).kind == "reshape"]
    assert split[program.results_of(reshaped[0])[0]] == 8 * 16 * 16 * 384 * 4
