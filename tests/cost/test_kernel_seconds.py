"""How long does one kernel take, from its work on both units and the bytes it moves?

units in turn      matrix + vector, not the longer of them
unhidden share     a share of the shorter of computing and moving is added
fed                a kernel of the vector unit reads the chip no faster than HBM; without an f32 result, one pass more
stream share       a kernel that reads one array, and multiplies nothing, gets a part of the memory's rate
unfilled tiles     a product whose dims are shorter than a tile of the matrix unit does the work of a whole tile;
                   a convolution's features fill the last tile up, and taps of a window lie side by side where they fit
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.hardware.devices import XLA_TPU
from tests.cost.programs import BYTES_PER_S, FLOP_PER_S, LAUNCH_S, copies_s, f32, plain_device, simulated

N = 512
SQUARE = 4.0 * N * N


def device(name, **changes):
    return plain_device(f"kernel_seconds_{name}", around_matmul=XLA_TPU, hbm_bytes_per_s=1e15, **changes)


def matmul_s(m, k, n):
    return 2.0 * m * k * n / FLOP_PER_S


def test_units_in_turn_add_the_vector_work_to_the_matrix_work():
    def function(x, w):
        return jnp.tan(x) @ w

    beside = simulated(function, f32(N, N), f32(N, N), device=device("beside"))
    in_turn = simulated(function, f32(N, N), f32(N, N), device=device("in_turn", units_in_turn=True))
    vector_s = beside.graph.nodes["vector_flop"].sum() / FLOP_PER_S
    assert vector_s > 0
    assert beside.compute_s == pytest.approx(LAUNCH_S + matmul_s(N, N, N), rel=1e-3)
    assert in_turn.compute_s == pytest.approx(LAUNCH_S + matmul_s(N, N, N) + vector_s, rel=1e-3)


def test_units_beside_each_other_hide_the_shorter_work_but_for_a_share():
    name = device("beside_in_part", unhidden_share=0.5)
    found = simulated(lambda x, w: jnp.tan(x) @ w, f32(N, N), f32(N, N), device=name)
    vector_s = found.graph.nodes["vector_flop"].sum() / FLOP_PER_S
    assert found.compute_s == pytest.approx(LAUNCH_S + matmul_s(N, N, N) + 0.5 * vector_s, rel=1e-3)


@pytest.mark.parametrize(("device", "hidden"), [("tpu_v5e", True), ("tpu_v4", False)])
def test_a_v5e_hides_a_gelu_behind_the_product_that_it_follows(device, hidden):
    """Of [4096, 1024] . [1024, 4096] in bf16 libtpu 0.0.51 counts 297,960 cycles, with two GELUs as many; on v4
    299,478 and 422,358.
    """
    x, w = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((4096, 1024), (1024, 4096)))
    plain = simulated(lambda x, w: x @ w, x, w, device=device).compute_s
    gelus = simulated(lambda x, w: jax.nn.gelu(jax.nn.gelu(x @ w)), x, w, device=device).compute_s
    assert (gelus < 1.15 * plain) == hidden


def test_an_unhidden_share_of_the_shorter_of_computing_and_moving_is_added():
    name = plain_device("kernel_seconds_unhidden", unhidden_share=0.5)
    found = simulated(lambda x, w: x @ w, f32(N, N), f32(N, N), device=name)
    moving_s, computing_s = 3 * SQUARE / BYTES_PER_S, matmul_s(N, N, N)
    assert found.compute_s == pytest.approx(LAUNCH_S + max(moving_s, computing_s) + 0.5 * min(moving_s, computing_s))


def test_a_kernel_that_reads_one_array_gets_the_rate_of_one_stream():
    name = plain_device("kernel_seconds_stream", stream_share=0.5)
    reads_one = simulated(lambda x: jnp.sum(x, axis=0), f32(64 * N, N), device=name)
    reads_two = simulated(lambda x, y: jnp.sum(x + y, axis=0), f32(64 * N, N), f32(64 * N, N), device=name)
    assert reads_one.compute_s == pytest.approx(reads_two.compute_s, rel=0.01)


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        (lambda x, y: x * 2, 2),
        (lambda x, y: x * y + 1, 3),
        (lambda x, y: (x * 2).sum(0), 2),
        (lambda x, y: (x * y + 1).sum(0), 3),
        (lambda x, y: (x * 2).astype(jnp.bfloat16), 2.5),
        (lambda x, y: (x * 2).astype(jnp.bfloat16).astype(jnp.float32).sum(0), 2),
    ],
)
def test_a_kernel_without_an_f32_result_takes_as_long_as_if_it_wrote_one(function, passes):
    """Passes of 65,536 x 1024 f32 through HBM as libtpu 0.0.51 counts them on v3 and v5e."""
    name = plain_device("kernel_seconds_fed", fed_at_hbm_rate=True, vector_flop_per_s=1e18)
    found = simulated(function, f32(64 * N, N), f32(64 * N, N), device=name)
    assert found.compute_s == pytest.approx(passes * 64 * SQUARE / BYTES_PER_S, rel=0.01)


def test_what_is_on_the_chip_is_read_no_faster_where_the_vector_unit_is_fed_at_the_rate_of_hbm():
    def function(x):
        return jnp.sort(x) * 2

    free = plain_device("kernel_seconds_on_chip", on_chip_bytes=1e9)
    fed = plain_device("kernel_seconds_on_chip_fed", on_chip_bytes=1e9, fed_at_hbm_rate=True)
    seconds = [simulated(function, f32(64 * N, N), device=d).compute_s for d in (free, fed)]
    assert seconds[1] - seconds[0] == pytest.approx(64 * SQUARE / BYTES_PER_S, rel=0.01)


def test_a_product_that_only_products_read_takes_as_long_as_if_it_were_left_in_f32_too():
    """It is left in bf16: of 32,768 x 256 f32 the whole kernel takes 58 us on a v5e, and nothing of it passes HBM."""

    def function(g, w, h):
        masked = (g @ w) * (h > 0)
        return h.T @ masked, masked @ w

    arrays = f32(64 * N, N), f32(N, N), f32(64 * N, N)
    rates = {"peak_flop_per_s": {"f32": 1e20, "bf16": 1e20}, "vector_flop_per_s": 1e20}
    chip = {"around_matmul": XLA_TPU, "on_chip_bytes": 1e9, "assigns_on_chip": True, **rates}
    free = plain_device("kernel_seconds_rounded", **chip)
    fed = plain_device("kernel_seconds_rounded_fed", fed_at_hbm_rate=True, **chip)
    seconds = [simulated(function, *arrays, device=d).compute_s for d in (free, fed)]
    assert seconds[1] - seconds[0] == pytest.approx(64 * SQUARE / BYTES_PER_S, rel=0.01)


def test_features_with_a_window_of_their_own_take_a_tile_for_each_place():
    def function(x, w):
        how = dict(dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=128)
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", **how)

    run = simulated(function, f32(8, 32, 32, 128), f32(3, 3, 1, 128), device=device("tiles", matmul_tile=(8, 128, 128)))
    work, flop = run.graph.nodes["matrix_work"].sum(), run.graph.nodes["matrix_flop"].sum()
    assert work == pytest.approx(128 * flop)


@pytest.mark.parametrize(
    ("images", "read", "left", "tile", "more"),
    [
        (32, 80, 160, 8, (128 / 80) * (256 / 160)),  # features along the lanes
        (128, 80, 160, 8, 256 / 240),  # images: 3 taps of 80 in two tiles
        (128, 160, 80, 8, 512 / 480),
        (128, 160, 80, 128, (512 / 480) * (128 / 80)),  # 80 rows take as long as 128
        (192, 80, 160, 8, (256 / 240) * (256 / 192)),
        (128, 128, 128, 128, 1),
    ],
)
def test_images_that_fill_the_lanes_leave_features_no_tile_to_fill(images, read, left, tile, more):
    def function(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    name = device(f"rows_{tile}", matmul_tile=(tile, 128, 128))
    run = simulated(function, f32(images, 16, 16, read), f32(3, 3, read, left), device=name)
    work, flop = run.graph.nodes["matrix_work"].sum(), run.graph.nodes["matrix_flop"].sum()
    assert work == pytest.approx(more * flop)


def test_a_row_times_a_matrix_for_each_place_of_a_batch_is_the_vector_units():
    def function(q, k):
        return jnp.einsum("bhd,bthd->bht", q, k)

    few, many = (f32(8, 4, 64), f32(8, 256, 4, 64)), (f32(8, 2, 4, 64), f32(8, 256, 4, 64))
    name = device("selects", compiler="xla_tpu")
    assert simulated(function, *few, device=name).graph.nodes["matrix_flop"].sum() == 0
    rows = simulated(lambda q, k: jnp.einsum("bqhd,bthd->bqht", q, k), *many, device=name)
    assert rows.graph.nodes["matrix_flop"].sum() > 0


def test_a_matmul_reads_one_array_at_the_full_rate():
    slow, full = plain_device("kernel_seconds_stream", stream_share=0.5), plain_device("fuses_elementwise")
    seconds = [simulated(lambda x, w: x @ w, f32(64 * N, N), f32(N, 1), device=d).compute_s for d in (slow, full)]
    assert seconds[0] == seconds[1]


@pytest.mark.parametrize(
    ("m", "k", "n", "more"),
    [(N, N, N, 1), (N, 32, N, 4), (N, N, 64, 2), (N, 32, 64, 8), (N, 128, 128, 1), (N, 196, N, 1)],
)
def test_a_short_dim_that_is_summed_or_a_column_leaves_its_tile_idle(m, k, n, more):
    name = device("tiles", matmul_tile=(8, 128, 128))
    found = simulated(lambda x, w: x @ w, f32(m, k), f32(k, n), device=name)
    assert found.compute_s == pytest.approx(LAUNCH_S + more * matmul_s(m, k, n), rel=1e-3)


@pytest.mark.parametrize(("m", "k", "n"), [(0, N, N), (N, 0, N), (N, N, 0)])
@pytest.mark.parametrize("tile", [(1, 1, 1), (8, 128, 128)])
def test_a_product_of_a_dim_without_elements_does_no_work(m, k, n, tile):
    name = device(f"tiles_{tile[1]}", matmul_tile=tile)
    found = simulated(lambda x, w: x @ w, f32(m, k), f32(k, n), device=name)
    assert found.compute_s == pytest.approx(LAUNCH_S + 4.0 * m * n / 1e15)


def test_a_dim_that_tiling_makes_short_leaves_its_tile_idle():
    rows, columns = (ap.ManualPartition({"w": d}, axis="x") for d in (0, 1))
    name = device("tiles", matmul_tile=(8, 128, 128))
    for schedule in ([rows], [columns]):
        found = simulated(lambda x, w: x @ w, f32(N, N), f32(N, N), device=name, ways=8, schedule=schedule)
        assert found.compute_s == pytest.approx(LAUNCH_S + 2 * matmul_s(N, N, N) / 8, rel=1e-3)


def test_several_columns_lie_side_by_side_in_the_tile():
    name = device("tiles", matmul_tile=(8, 128, 128))

    def heads(x, w):
        return jnp.einsum("md,dhe->mhe", x, w)

    for count, size, more in ((16, 64, 1), (64, 16, 1), (2, 32, 2)):
        found = simulated(heads, f32(N, N), f32(N, count, size), device=name)
        assert found.compute_s == pytest.approx(LAUNCH_S + more * matmul_s(N, N, count * size), rel=1e-3)


BATCH, ROWS = 64, 16


def convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def kernel_gradient(x, dy):
    numbers = jax.lax.ConvDimensionNumbers((3, 0, 1, 2), (3, 0, 1, 2), (2, 3, 0, 1))
    return jax.lax.conv_general_dilated(x, dy, (1, 1), [(1, 1), (1, 1)], dimension_numbers=numbers)


CONVOLUTIONS = [(80, 20, 86.2), (160, 20, 168.5), (240, 20, 168.5), (20, 80, 38.5), (20, 160, 62.7)]
"""Input and output features, and microseconds for TPU v3 by cycles that the compiler estimates (libtpu 0.0.51)."""


@pytest.mark.parametrize(("features", "made", "compiler_us"), CONVOLUTIONS)
def test_a_convolution_takes_what_the_tpu_compiler_says(features, made, compiler_us):
    found = simulated(convolved, f32(BATCH, ROWS, ROWS, features), f32(3, 3, features, made), device="tpu_v3")
    assert 1e6 * (found.compute_s - copies_s(found)) == pytest.approx(compiler_us, rel=0.25)


@pytest.mark.parametrize(("features", "made", "compiler_us"), [(80, 20, 86.3), (240, 20, 168.6)])
def test_the_gradient_of_its_kernel_streams_images_through_the_unit_too(features, made, compiler_us):
    images = f32(BATCH, ROWS, ROWS, features), f32(BATCH, ROWS, ROWS, made)
    found = simulated(kernel_gradient, *images, device="tpu_v3")
    assert 1e6 * (found.compute_s - copies_s(found)) == pytest.approx(compiler_us, rel=0.25)


PRODUCTS = [
    ("tpu_v5e", 64, 1024, 64, 1024, "bfloat16", 641.5),
    ("tpu_v5e", 64, 1024, 512, 1024, "bfloat16", 757.6),
    ("tpu_v5e", 1, 8192, 256, 8192, "bfloat16", 665.1),
    ("tpu_v5e", 64, 1024, 1024, 64, "bfloat16", 290.4),
    ("tpu_v5e", 64, 1024, 1024, 256, "bfloat16", 411.8),
    ("tpu_v5e", 256, 256, 128, 256, "bfloat16", 189.5),
    ("tpu_v5e", 512, 512, 512, 64, "bfloat16", 664.9),
    ("tpu_v5e", 64, 1024, 128, 1024, "float32", 506.9),
    ("tpu_v5e", 1, 8192, 512, 8192, "float32", 471.6),
    ("tpu_v3", 64, 1024, 64, 1024, "bfloat16", 1025.9),
    ("tpu_v3", 1, 8192, 256, 8192, "bfloat16", 1013.1),
    ("tpu_v3", 64, 1024, 1024, 128, "bfloat16", 516.6),
    ("tpu_v3", 64, 512, 128, 512, "bfloat16", 289.6),
]
"""Batches, rows, summed dim and columns of a product, and its microseconds by libtpu 0.0.51."""


@pytest.mark.parametrize(("device", "batches", "rows", "summed", "columns", "dtype", "compiler_us"), PRODUCTS)
def test_a_product_takes_the_compilers_seconds_in_f32_and_in_bf16(
    device, batches, rows, summed, columns, dtype, compiler_us
):
    left, right = (jax.ShapeDtypeStruct((batches, *s), dtype) for s in ((rows, summed), (summed, columns)))
    found = simulated(jnp.matmul, left, right, device=device)
    assert 0.8 <= 1e6 * found.compute_s / compiler_us <= 1.25


def test_a_product_of_which_only_the_largest_are_kept_takes_as_long_as_if_it_were_written():
    def product(q, k):
        return jnp.einsum("bqd,bkd->bqk", q, k)

    sides = [jax.ShapeDtypeStruct((64, 1024, 128), jnp.bfloat16)] * 2
    found = simulated(lambda q, k: product(q, k).max(-1), *sides, device="tpu_v5e")
    assert 1e6 * found.compute_s == pytest.approx(478.0, rel=0.1)
