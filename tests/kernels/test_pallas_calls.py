"""How is a Pallas call sliced, and what is in the way where it is not?"""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

import autopart as ap
from tests.kernels.programs import MESH, arrays, close, kernels, plain_attention, plain_norm, rms_norm

flash_module = importlib.import_module("jax.experimental.pallas.ops.tpu.flash_attention")
D, M = ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"x": 1}, axis="m")


def call(body, out, grid, in_specs, out_specs, *operands, **how):
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(*out),
        grid=grid,
        in_specs=in_specs,
        out_specs=out_specs,
        interpret=True,
        **how,
    )(*operands)


def copied(index_map, grid=(4, 2), body=None, out_map=lambda i, j: (i, j)):
    """A kernel from x[8,16] in blocks [2,8] to the same."""

    def plain(x, o):
        o[...] = x[...]

    specs = [pl.BlockSpec((2, 8), index_map)], pl.BlockSpec((2, 8), out_map)
    return lambda x: call(body or plain, ((8, 16), "float32"), grid, *specs, x, name="copied")


def lowered(function, *operands, schedule=(), device="tpu_v5e"):
    return ap.jit(function, ap.Mesh(MESH, device=device), list(schedule)).lower(*operands)


def rule_and_why(function, *operands):
    (found,) = kernels(lowered(function, *operands)).values()
    return found["rule"].partition("; ")[2], found["whole"]


X = jax.ShapeDtypeStruct((8, 16), "float32")


def test_a_grid_dim_that_index_maps_carry_straight_is_sliced_and_each_device_has_the_smaller_grid():
    x, w = arrays((64, 16), (16,))
    step = ap.jit(lambda x, w: rms_norm(x, w) * 2, ap.Mesh(MESH), [D])
    low = step.lower(x, w)
    assert kernels(low)["rms_norm"]["rule"] == "g0 _, _ -> g0 _; tile g0=64; reduce -"
    assert not low.program.collectives()
    close(step(x, w), plain_norm(x, w) * 2)


@pytest.mark.parametrize(
    ("function", "sliced", "why"),
    [
        (copied(lambda i, j: (i, j)), "tile g0=8 g1=16", ""),
        (copied(lambda i, j: (i, jnp.minimum(i, j))), "tile -", "dim 1, depends on"),
        (copied(lambda i, j: (3 - i, j)), "tile g1=16", "does not go through the blocks in order"),
        (
            copied(lambda i, j: (i, j), out_map=lambda i, j: (i, 0)),
            "tile g0=8",
            "several steps write one block of outputs",
        ),
        (copied(lambda i, j: (i // 2, j), grid=(8, 2), out_map=lambda i, j: (i // 2, j)), "tile g0=4 g1=16", ""),
        (
            copied(lambda i, j: (i // 2, i % 2), grid=(8, 1), out_map=lambda i, j: (i // 2, i % 2)),
            "tile g0=4 g0s1=2",
            "",
        ),
        (
            copied(lambda i, j: (2 * i + j, 0), grid=(2, 2), out_map=lambda i, j: (2 * i + j, 0)),
            "tile g0=2",
            "on 0 too",
        ),
        (copied(lambda i, j: (i % 2, j), out_map=lambda i, j: (i, j)), "tile g0=2 g1=16", ""),
    ],
)
def test_index_maps_say_which_grid_dims_are_sliced_and_which_one_is_in_the_way(function, sliced, why):
    rule, whole = rule_and_why(function, X)
    assert rule.startswith(sliced)
    assert why in whole


@pytest.mark.parametrize(
    ("maps", "grid"),
    [
        ((lambda i: (i // 2, i % 2), lambda i: (i // 2, i % 2)), (8,)),
        ((lambda i: (i % 4, i // 4), lambda i: (i % 4, i // 4)), (8,)),
        ((lambda i, j: (2 * i + j // 2, j % 2), lambda i, j: (2 * i + j // 2, j % 2)), (2, 4)),
    ],
)
def test_digits_of_a_grid_dim_are_sliced_and_each_device_has_its_blocks(maps, grid):
    def body(x, o):
        o[...] = x[...] * 2

    specs = [pl.BlockSpec((2, 8), m) for m in maps]

    def function(x):
        return call(body, ((8, 16), "float32"), grid, specs[:1], specs[1], x)

    step = ap.jit(function, ap.Mesh(MESH), [D, M])
    (x,) = arrays((8, 16))
    assert not step.lower(x).program.collectives()
    close(step(x), x * 2)


def test_blocks_by_element_may_overlap_along_a_dim_that_is_whole():
    def body(x, o):
        o[...] = x[:, :-2] + x[:, 2:]

    def function(x):
        padded = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
        blocks = pl.BlockSpec((pl.Element(1), pl.Element(6), pl.Element(8)), lambda b, i, c: (b, 4 * i, 8 * c))
        out = pl.BlockSpec((1, 4, 8), lambda b, i, c: (b, i, c))
        return call(body, (x.shape, x.dtype), (4, 2, 2), [blocks], out, padded)

    step = ap.jit(function, ap.Mesh(MESH), [D, ap.ManualPartition({"x": 2}, axis="m")])
    (x,) = arrays((4, 8, 16))
    assert not step.lower(x).program.collectives()
    close(step(x), jax.jit(function)(x))


def test_a_body_that_asks_which_step_it_is_keeps_the_dim_whole():
    def body(x, o):
        o[...] = x[...] + pl.program_id(0)

    rule, whole = rule_and_why(copied(lambda i, j: (i, j), body=body), X)
    assert rule.startswith("tile g1=16;")
    assert whole == "grid dim 0 (4 steps): the body asks which step it is"


def test_a_body_that_asks_for_a_remainder_is_sliced_by_whole_periods():
    def body(x, o):
        @pl.when(pl.program_id(0) % 2 == 0)
        def _():
            o[...] = x[...]

        @pl.when(pl.program_id(0) % 2 == 1)
        def _():
            o[...] = x[...] + 1

    function = copied(lambda i, j: (i, j), body=body)
    assert rule_and_why(function, X)[0].startswith("tile g0=2 g1=16;")
    (x,) = arrays((8, 16))
    close(ap.jit(function, ap.Mesh(MESH), [D, M])(x), jax.jit(function)(x))


def test_the_report_names_the_index_map_that_is_in_the_way():
    low = lowered(copied(lambda i, j: (3 - i, j)), X, schedule=[D])
    (row,) = low.metadata.gathered
    assert row.kind == "kernel copied"
    assert "the index map of args[0], dim 0, does not go through the blocks in order" in row.reason


def test_scalars_that_are_read_at_a_step_are_sliced_with_it():
    def body(lengths, x, o):
        o[...] = x[...] * lengths[pl.program_id(0)]

    spec = pl.BlockSpec((2, 16), lambda i, lengths: (i, 0))

    def function(x, lengths):
        from jax.experimental.pallas import tpu as pltpu

        grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(4,), in_specs=[spec], out_specs=spec)
        return pl.pallas_call(
            body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid_spec=grid, interpret=True, name="scaled"
        )(lengths, x)

    (x,) = arrays((8, 16))
    lengths = jnp.arange(4)
    step = ap.jit(function, ap.Mesh(MESH), [D])
    assert kernels(step.lower(x, lengths))["scaled"]["rule"].startswith("g0, g0 r0 -> g0 r0; tile g0=4 ")
    close(step(x, lengths), x * jnp.repeat(lengths, 2)[:, None])


def test_flop_are_the_estimate_of_the_call_or_those_of_its_body():
    def body(a, b, o):
        o[...] = jnp.dot(a[...], b[...])

    def product(estimate):
        specs = [pl.BlockSpec((8, 32), lambda i: (i, 0)), pl.BlockSpec((32, 8), lambda i: (0, 0))]
        out = pl.BlockSpec((8, 8), lambda i: (i, 0))
        how = {} if estimate is None else {"cost_estimate": pl.CostEstimate(estimate, 0, 0)}
        return lambda a, b: call(body, ((64, 8), "float32"), (8,), specs, out, a, b, name="product", **how)

    operands = jax.ShapeDtypeStruct((64, 32), "float32"), jax.ShapeDtypeStruct((32, 8), "float32")
    assert kernels(lowered(product(None), *operands))["product"]["matrix_flop"] == 2 * 64 * 32 * 8
    assert kernels(lowered(product(1000), *operands))["product"]["matrix_flop"] == 1000


def in_some_steps(body):
    x = jax.ShapeDtypeStruct((32, 8), "float32")
    spec = pl.BlockSpec((8, 8), lambda i, j: (i, 0))
    low = lowered(lambda x: call(body, ((32, 8), "float32"), (4, 4), [spec], spec, x, name="some"), x)
    return kernels(low)["some"]["matrix_flop"] / (2 * 8 * 8 * 8)


def test_steps_that_a_body_leaves_out_by_their_place_cost_nothing():
    def below_the_diagonal(x, o):
        @pl.when(pl.program_id(1) <= pl.program_id(0))
        def _():
            @pl.when(pl.program_id(1) > 0)
            def _():
                o[...] = jnp.dot(x[...], x[...])

    def as_often_as_its_place_says(x, o):
        def turn(_, y):
            return jnp.dot(y, x[...])

        o[...] = jax.lax.fori_loop(0, pl.program_id(0) + 1, turn, x[...])

    def by_what_it_reads(x, o):
        @pl.when(x[0, 0] > 0)
        def _():
            o[...] = jnp.dot(x[...], x[...])

    assert in_some_steps(below_the_diagonal) == 6
    assert in_some_steps(as_often_as_its_place_says) == 4 * (1 + 2 + 3 + 4)
    assert in_some_steps(by_what_it_reads) == 16


@pytest.mark.parametrize("causal", [False, True])
def test_causal_attention_has_the_flop_of_the_blocks_that_its_mask_leaves(causal):
    q = jax.ShapeDtypeStruct((1, 2, 1024, 128), "bfloat16")
    low = lowered(lambda q, k, v: flash_attention(q, k, v, causal=causal), q, q, q)
    (found,) = kernels(low).values()
    blocks = 8 * 9 / 2 if causal else 8 * 8
    assert found["matrix_flop"] == 2 * blocks * 4 * 128**3


@pytest.mark.parametrize(("mask", "blocks"), [("CausalMask", 8 * 9 / 2), ("FullMask", 64)])
def test_splash_attention_has_the_flop_of_the_blocks_that_its_mask_leaves(mask, blocks):
    masks = splash_attention_mask.MultiHeadMask([getattr(splash_attention_mask, mask)((1024, 1024))] * 2)
    attend = jax.vmap(splash_attention_kernel.make_splash_mha_single_device(masks))
    q = jax.ShapeDtypeStruct((1, 2, 1024, 128), "bfloat16")
    (found,) = kernels(lowered(lambda q, k, v: attend(q, k, v), q, q, q)).values()
    assert found["matrix_flop"] == 2 * blocks * 4 * 128**3


@pytest.mark.parametrize(("features", "times"), [(64, 4), (128, 2), (256, 1)])
def test_a_kernel_takes_as_long_as_the_tiles_that_it_fills_in_part(features, times):
    q = jax.ShapeDtypeStruct((8, 8, 2048, features), "bfloat16")
    device = ap.Mesh({"d": 1}, device="tpu_v6e")
    how = {"block_q": 1024, "block_k_major": 1024, "block_k": 1024, "block_b": 1}
    sizes = flash_module.BlockSizes(**how)
    low = ap.jit(lambda q, k, v: flash_attention(q, k, v, block_sizes=sizes), device).lower(q, q, q)
    flop = 8 * 8 * 4 * 2048**2 * features
    assert low.estimate.step_s == pytest.approx(times * flop / (918e12 * 0.60), rel=0.1)


def test_a_grid_whose_length_is_read_has_as_many_steps_as_write_each_block():
    def body(x, o):
        o[...] = jnp.dot(x[...], x[...])

    def function(x, steps):
        spec = pl.BlockSpec((8, 8), lambda i: (i, 0))
        return call(body, ((32, 8), "float32"), (steps,), [spec], spec, x)

    (found,) = kernels(lowered(function, jax.ShapeDtypeStruct((32, 8), "float32"), jnp.int32(4))).values()
    assert found["matrix_flop"] == 4 * 2 * 8**3


@pytest.fixture(scope="module")
def qkv():
    return arrays((2, 4, 128, 128), (2, 2, 128, 128), (2, 2, 128, 128))


def splash(heads, tokens):
    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((tokens, tokens))] * heads)
    return jax.vmap(splash_attention_kernel.make_splash_mha_single_device(mask))


def test_splash_attention_is_divided_by_batch_and_heads_forward_and_backward(qkv):
    attend = splash(4, 128)
    gradient = jax.value_and_grad(lambda q, k, v: (attend(q, k, v) ** 2).sum(), argnums=(0, 1, 2))
    schedule = [ap.ManualPartition({"q": 0}, axis="d"), ap.ManualPartition({"q": 1}, axis="m")]
    step = ap.jit(gradient, ap.Mesh(MESH, device="tpu_v5e"), schedule)
    low = step.lower(*qkv)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert low.program.collectives() == {"all_reduce": 1}
    plain = jax.value_and_grad(lambda q, k, v: (plain_attention(q, k, v) ** 2).sum(), argnums=(0, 1, 2))
    close(step(*qkv), plain(*qkv))


def test_queries_of_splash_attention_are_divided_with_their_rows_of_the_mask():
    attend, qkv = splash(4, 256), arrays((2, 4, 256, 128), (2, 2, 256, 128), (2, 2, 256, 128))
    schedule = [ap.ManualPartition({"q": 0}, axis="d"), ap.ManualPartition({"q": 2}, axis="m")]
    step = ap.jit(lambda q, k, v: attend(q, k, v), ap.Mesh(MESH, device="tpu_v5e"), schedule)
    low = step.lower(*qkv)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert not low.program.collectives()
    close(step(*qkv), plain_attention(*qkv))


def test_flash_attention_is_divided_by_batch_and_heads_forward_and_backward(qkv):
    q, k, v = qkv[0], *(jnp.repeat(x, 2, axis=1) for x in qkv[1:])
    gradient = jax.grad(lambda q, k, v: (flash_attention(q, k, v, causal=True) ** 2).sum(), argnums=(0, 1, 2))
    schedule = [ap.ManualPartition({"q": 0}, axis="d"), ap.ManualPartition({"q": 1}, axis="m")]
    step = ap.jit(gradient, ap.Mesh(MESH, device="tpu_v5e"), schedule)
    low = step.lower(q, k, v)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert not low.program.collectives()
    close(step(q, k, v), jax.grad(lambda q, k, v: (plain_attention(q, k, v) ** 2).sum(), (0, 1, 2))(q, k, v))


def test_the_kernel_of_a_slice_lowers_for_the_device():
    q = jax.ShapeDtypeStruct((4, 4, 256, 128), "bfloat16")
    (body,) = lowered(lambda q, k, v: flash_attention(q, k, v), q, q, q).traced.program.source.bodies
    slices = body.local_avals([(2, 1, 256, 128)] * 3)
    text = jax.jit(body.kernel(slices)).trace(*slices).lower(lowering_platforms=("tpu",)).as_text()
    assert "tpu_custom_call" in text
    assert "tensor<2x1x256x128xbf16>" in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kernels_for_gpus_are_divided_by_batch_and_heads():
    gpu_attention = pytest.importorskip("jax.experimental.pallas.ops.gpu.attention")
    q, k, v = arrays(*[(4, 64, 4, 32)] * 3)
    sizes = {f"block_{n}": 32 for n in ("q", "k", "q_dkv", "kv_dkv", "q_dq", "kv_dq")}

    def attend(q, k, v):
        return gpu_attention.mha(q, k, v, None, causal=True, block_sizes=gpu_attention.BlockSizes(**sizes))

    def plain(q, k, v):
        heads_first = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
        return jnp.swapaxes(plain_attention(*heads_first), 1, 2)

    def gradient(function):
        return jax.grad(lambda *x: (function(*x) ** 2).sum(), argnums=(0, 1, 2))

    schedule = [ap.ManualPartition({"x/0": 0}, axis="d"), ap.ManualPartition({"x/0": 2}, axis="m")]
    step = ap.jit(gradient(attend), ap.Mesh(MESH, device="h100"), schedule)
    assert not step.lower(q, k, v).program.collectives()
    close(step(q, k, v), gradient(plain)(q, k, v))


def test_a_result_that_is_written_over_an_operand_is_sliced_with_it():
    def body(x, o):
        o[...] = x[...] + 1

    def in_place(x):
        spec = pl.BlockSpec((2, 16), lambda i: (i, 0))
        return call(body, (x.shape, x.dtype), (4,), [spec], spec, x, name="in_place", input_output_aliases={0: 0})

    (x,) = arrays((8, 16))
    step = ap.jit(in_place, ap.Mesh(MESH), [D])
    assert not step.lower(x).program.collectives()
    close(step(x), x + 1)


def test_calls_of_which_other_results_are_read_are_other_kernels():
    def both(x, y, z):
        y[...], z[...] = x[...] + 1, x[...] * 2

    def pair(x):
        spec = pl.BlockSpec((2, 16), lambda i: (i, 0))
        out = [jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2
        return pl.pallas_call(both, out_shape=out, grid=(4,), in_specs=[spec], out_specs=[spec] * 2, interpret=True)(x)

    (x,) = arrays((8, 16))
    step = ap.jit(lambda x: (pair(x)[0], pair(x)[1]), ap.Mesh(MESH), [D])
    close(step(x), (x + 1, x * 2))


def test_a_loop_in_a_body_that_asks_keeps_the_dim_whole():
    def body(x, o):
        def turn(_, total):
            return total + pl.program_id(1)

        o[...] = x[...] + jax.lax.fori_loop(0, 2, turn, 0)

    rule, whole = rule_and_why(copied(lambda i, j: (i, j), body=body), X)
    assert rule.startswith("tile g0=8;")
    assert whole == "grid dim 1 (2 steps): the body asks which step it is"
