"""Which ops are computed inside their consumers, and which are kernels of their own?

tanh(exp(x) * 2 + x) / 3     one kernel: reads x, writes the quotient
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.costmodel.compiled.fusion.fusion import MOST_OPERANDS
from autopart.costmodel.hardware.devices import XLA_TPU
from tests.cost.programs import BYTES_PER_S, LAUNCH_S, f32, kernels, moves, plain_device, simulated

N = 256
SQUARE = 4.0 * N * N


def run(function, *args, tpu=False, **how):
    name = plain_device("fuses_into_matmuls", around_matmul=XLA_TPU) if tpu else plain_device("fuses_elementwise")
    return simulated(function, *(args or (f32(N, N), f32(N, N))), device=name, **how)


def roots(found):
    """The kind of each kernel's root, in program order."""
    program = found.local.program
    return [program.spec(int(found.graph.nodes["subject"][k])).kind for k in kernels(found)]


def test_an_elementwise_chain_is_one_kernel_that_reads_and_writes_once():
    found = run(lambda x, y: jnp.tanh(jnp.exp(x) * 2 + x) / 3 + y)
    assert roots(found) == ["add"]
    assert found.hbm_bytes == 3 * SQUARE
    assert found.compute_s == pytest.approx(LAUNCH_S + 3 * SQUARE / BYTES_PER_S)


def test_matmuls_take_elementwise_operands_on_tpus_only():
    def function(x, w):
        return (x * 2) @ w

    assert roots(run(function)) == ["multiply", "dot_general"]
    assert roots(run(function, tpu=True)) == ["dot_general"]
    assert run(function).hbm_bytes == run(function, tpu=True).hbm_bytes + 2 * SQUARE


def test_a_product_in_groups_is_a_kernel_of_its_own_on_tpus_too():
    def function(x, w, sizes):
        return jax.lax.ragged_dot(x * 2, w, sizes) + 1

    args = (f32(4 * N, N), f32(4, N, N), jax.ShapeDtypeStruct((4,), np.int32))
    found = simulated(function, *args, device="tpu_v5e")
    assert roots(found) == ["multiply", "chlo.ragged_dot", "add"]
    dense = simulated(lambda x, w: (x * 2) @ w, f32(4 * N, N), f32(N, N), device="tpu_v5e")
    assert roots(dense) == ["dot_general"]


def test_a_product_in_groups_passes_as_often_as_its_precision_asks():
    def seconds(precision):
        args = (f32(32 * N, 16 * N), f32(4, 16 * N, 16 * N), jax.ShapeDtypeStruct((4,), np.int32))
        product = lambda x, w, sizes: jax.lax.ragged_dot(x, w, sizes, precision=precision)  # noqa: E731
        return simulated(product, *args, device="tpu_v5e").compute_s

    assert 5 < seconds("highest") / seconds("default") < 6.01


def test_a_constant_spread_out_is_written_for_no_one():
    found = run(lambda x, y: np.full((N, N), 3.0, "f4") @ y)
    assert roots(found) == ["dot_general"]
    assert found.hbm_bytes == 2 * SQUARE


def test_an_output_is_written_even_if_it_is_read_again():
    def function(x, y):
        first = x * 2
        return first, first + y

    assert roots(run(function)) == ["multiply", "add"]


def test_an_expensive_op_is_computed_again_for_each_reader_unless_it_may_not_be():
    def function(x, y):
        e = jnp.exp(x)
        return jnp.sort(e + y), jnp.sort(e * y)

    again, once = run(function), run(function, recompute=False)
    assert roots(again).count("exponential") == 0
    assert roots(once).count("exponential") == 1
    assert again.flop > once.flop


def test_a_cheap_op_is_computed_again_in_any_case():
    def function(x, y):
        negated = -x
        return jnp.sort(negated + y), jnp.sort(negated * y)

    assert roots(run(function, recompute=False)).count("negate") == 0


def test_a_sum_that_two_kernels_read_is_written_once():
    def function(x, y):
        residual = x + y
        return jnp.sort(residual * 2), jnp.sort(residual * 3)

    assert roots(run(function)).count("add") == 1


def test_what_is_made_from_one_large_array_is_computed_again_for_each_reader():
    def function(x, bias):
        h = x + bias
        gelu = h * jax.nn.sigmoid(h)
        return jnp.sort(gelu * 2), jnp.sort(gelu * 3)

    found = run(function, f32(N, N), f32(N))
    assert roots(found).count("multiply") == 2
    assert not {"add", "logistic"} & set(roots(found))


@pytest.mark.parametrize(("dtype", "written"), [("float32", True), ("bfloat16", False)])
def test_what_is_rounded_for_products_alone_is_computed_in_each_of_them(dtype, written):
    def function(x, y, w):
        both = x * y
        return both @ w, both.T @ w

    found = run(function, *[jax.ShapeDtypeStruct((N, N), dtype)] * 3, tpu=True)
    assert roots(found) == ["multiply"] * written + ["dot_general"] * 2


@pytest.mark.parametrize(("others", "written"), [(False, False), (True, True)])
def test_what_is_scaled_last_is_computed_in_each_product_where_only_products_read_it(others, written):
    def function(x, y, scale, w):
        both = x * y * scale
        return both @ w, both.T @ w, both.sum() if others else w

    found = roots(run(function, f32(N, N), f32(N, N), f32(N), f32(N, N), tpu=True))
    assert ("multiply" in found) == written


def test_a_bf16_sum_to_a_products_result_is_written_by_the_product():
    def function(x, y, w):
        both = x @ w + y
        return both @ w, both.T @ w

    found = run(function, *[jax.ShapeDtypeStruct((N, N), jnp.bfloat16)] * 3, tpu=True)
    assert roots(found) == ["dot_general", "add", "dot_general", "dot_general"]


def test_a_bf16_sum_that_a_norm_reads_too_is_written_once():
    def function(x, y, w):
        both = x + y
        return both @ w, both.sum(0)

    found = run(function, *[jax.ShapeDtypeStruct((N, N), jnp.bfloat16)] * 3, tpu=True)
    assert "add" in roots(found)


def test_a_sum_whose_readers_meet_in_one_kernel_is_never_written():
    def function(x, y):
        total = x + y
        return jnp.tanh(total) * total

    found = run(function)
    assert roots(found) == ["multiply"]
    assert found.hbm_bytes == 3 * SQUARE


def test_a_sum_behind_a_view_is_written_once():
    def function(x, y):
        flat = (x + y).reshape(-1)
        return jnp.sort(flat * 2), jnp.sort(flat * 3)

    assert roots(run(function)).count("add") == 1


def test_a_sum_of_narrow_arrays_that_reads_no_more_than_it_has_is_computed_again():
    def function(x, y):
        total = x.astype(jnp.float32) + y.astype(jnp.float32)
        return jnp.sort(total * 2), jnp.sort(total * 3)

    half = jax.ShapeDtypeStruct((N, N), jnp.bfloat16)
    assert "add" not in roots(run(function, half, half))


def test_a_view_between_two_elementwise_ops_does_not_keep_them_apart():
    found = run(lambda x, y: jnp.tanh((x * 2).reshape(-1)), f32(N, N), f32(N, N))
    assert roots(found) == ["tanh"]
    assert found.hbm_bytes == 2 * SQUARE


def test_what_a_loop_reads_from_outside_is_written_before_the_loop():
    def function(x, y):
        doubled = x * 2
        return jax.lax.fori_loop(0, 3, lambda i, c: c + doubled, y)

    assert "multiply" in roots(run(function))


def test_what_is_pooled_is_written_for_the_gradient_that_selects_in_it():
    """The forward window computes the ReLU inside itself; the kernel that looks for the largest elements reads it."""

    def pooled(x, y):
        return jax.lax.reduce_window(jnp.maximum(x, 0.0), -np.inf, jax.lax.max, (2, 2), (2, 2), "VALID")

    assert roots(run(pooled)) == ["reduce_window"]
    found = roots(run(jax.grad(lambda x, y: pooled(x, y).sum()), tpu=True))
    assert found.index("maximum") < found.index("select_and_scatter")


def test_what_is_redistributed_is_written_before_that():
    both = [ap.ManualPartition({"x": 0, "y": 0}, axis="x")]
    found = run(lambda x, y: jnp.sort(x * 2, axis=0) + y, ways=2, schedule=both)
    assert len(moves(found)) > 0
    assert roots(found)[0] == "multiply"


@pytest.mark.parametrize(("arrays", "count"), [(MOST_OPERANDS, 1), (MOST_OPERANDS + 4, 2), (2 * MOST_OPERANDS + 4, 3)])
def test_no_kernel_reads_more_than_so_many_arrays(arrays, count):
    def function(first, *others):
        for other in others:
            first = first * other + other
        return first

    assert len(roots(run(function, *[f32(N, N)] * arrays))) == count


def test_random_bits_are_one_kernel_that_computes_each_round_once():
    """Both words of a round read both of the round before: 2 to the power of 20 ways lead to the first."""
    found = run(lambda key: jax.random.bits(jax.random.wrap_key_data(key), (N, N)), jax.ShapeDtypeStruct((2,), "u4"))
    large = [k for k in kernels(found) if found.graph.nodes["vector_flop"][k] > N * N]
    assert len(large) == 1
    assert 100 * N * N < found.graph.nodes["vector_flop"][large[0]] < 150 * N * N


@pytest.mark.parametrize("read", [lambda d, x: (d @ x, d.sum(-1)[:, None] * d), lambda d, x: (d @ x, d.T @ x)])
def test_what_a_mask_of_random_bits_drops_is_written_where_two_kernels_read_it(read):
    def dropped(key, x):
        kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
        return read(jnp.where(kept, x, 0.0), x)

    assert "select" in roots(run(dropped, jax.ShapeDtypeStruct((2,), "u4"), f32(N, N), tpu=True))


def label_gradient(logits, labels, w):
    """The gradient of a cross entropy, as its matmuls read it."""

    def loss(logits):
        picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)
        return (jnp.log(jnp.exp(logits).sum(-1)) - picked[:, 0]).sum()

    gradient = jax.grad(loss)(logits)
    return gradient @ w, gradient.T @ w


def test_one_element_added_to_each_row_is_a_select_inside_the_gradient_where_the_compiler_makes_it_one():
    args = (f32(N, N), jax.ShapeDtypeStruct((N,), "i4"), f32(N, N))
    scatters = {}
    for selects in (False, True):
        name = plain_device(f"xla_tpu_{selects}", around_matmul=XLA_TPU, compiler="xla_tpu" if selects else "plain")
        found = simulated(label_gradient, *args, device=name)
        scatters[selects] = roots(found).count("scatter")
        assert "add" not in roots(found), "the gradient is computed in both matmuls that read it"
    assert scatters[False] == scatters[True] + 1


def test_what_a_sum_over_dims_of_one_begins_with_is_no_kernel_where_its_result_is_reduced():
    shard = [ap.ManualPartition({"x": 0}, axis="x")]

    def function(x):
        wide = jnp.sum(x, axis=0, keepdims=True)[:, None]
        return jax.lax.reduce(wide, 0.0, jax.lax.add, (0, 1))

    found = run(function, f32(N, N), ways=2, schedule=shard)
    assert len(moves(found)) == 1
    assert "constant" not in roots(found)


def test_rows_that_positions_name_or_that_get_two_elements_are_scattered():
    name = plain_device("xla_tpu", compiler="xla_tpu")
    labels = jax.ShapeDtypeStruct((N,), "i4")

    def by_position(x, labels):
        return jnp.zeros((N, N)).at[jnp.arange(N), labels].add(x[0])

    def two(x, labels):
        both = jnp.stack([labels, labels], axis=-1)
        return jax.vjp(lambda y: jnp.take_along_axis(y, both, axis=-1), x)[1](x[:, :2])[0]

    for function in (by_position, two):
        assert "scatter" in roots(simulated(function, f32(N, N), labels, device=name))


def test_an_add_reads_of_what_it_computes_as_much_as_a_slice_keeps():
    def added(part):
        return lambda x, y, a: a + part((x @ y).T)

    quarter = f32(N // 4, N)
    sliced = run(added(lambda g: g[: N // 4]), f32(N, N), f32(N, N), quarter)
    at_a_place = run(added(lambda g: jax.lax.dynamic_slice(g, (8, 0), quarter.shape)), f32(N, N), f32(N, N), quarter)
    assert roots(sliced) == roots(at_a_place) == ["dot_general", "add"]
    assert sliced.hbm_bytes == at_a_place.hbm_bytes == 3 * SQUARE + 3 * SQUARE / 4


def test_what_a_kernel_reads_by_a_slice_and_as_it_is_counts_whole():
    def halves(x, y):
        g = (x @ y).T
        return g[: N // 2] + g[N // 2 :]

    assert run(halves).hbm_bytes == 3 * SQUARE + SQUARE + SQUARE / 2
    assert run(lambda x, y: (lambda g: g + jnp.tile(g[:1], (N, 1)))((x @ y).T)).hbm_bytes == 3 * SQUARE + 2 * SQUARE


def test_an_operand_of_a_product_that_is_a_slice_counts_as_if_it_were_copied():
    def product(x, y):
        return (x @ y).T[: N // 4] @ y

    assert run(product, tpu=True).hbm_bytes == 3 * SQUARE + 2 * SQUARE + SQUARE / 4


CUT = {
    "one part": (lambda x: jnp.exp(x)[: N // 2] + 1, False),
    "both parts": (lambda x: (lambda e: e[: N // 2] * e[N // 2 :])(jnp.exp(x)), True),
    "a part and all": (lambda x: (lambda e: (e + 1, e[: N // 2] * 2))(jnp.exp(x)), True),
    "every other row": (lambda x: jnp.exp(x)[::2] + 1, True),
    "padded": (lambda x: jnp.pad(jnp.exp(x), ((1, 0), (0, 0))) + 1, True),
    "joined": (lambda x: jnp.concatenate([jnp.exp(x), x]) + 1, True),
    "padded zeros": (lambda x: jnp.pad(jnp.zeros((N, N)), ((1, 0), (0, 0))) + x[:1], False),
}
"""What the TPU compiler does with an operand: is it written? Each as libtpu 0.0.51 on v5e has it."""


@pytest.mark.parametrize("case", CUT)
def test_what_is_cut_or_joined_is_written_on_tpus(case):
    function, written = CUT[case]
    kinds = roots(simulated(function, f32(N, N), device="tpu_v5e"))
    assert ("exponential" in kinds) == written
    assert "broadcast_in_dim" not in kinds


def test_gpus_compute_what_is_cut_or_joined_inside_its_readers():
    for function, _ in CUT.values():
        assert "exponential" not in roots(simulated(function, f32(N, N), device="h100"))


def test_what_an_associative_scan_combines_is_written_at_each_level():
    """Of 2 N rows at the first: read by slices, every other row of each level is combined with the one before it."""
    found = simulated(lambda x: jax.lax.associative_scan(jnp.multiply, jnp.exp(x)), f32(N, N), device="tpu_v5e")
    whole = found.graph.nodes["vector_flop"].sum() / N**2
    assert whole < 4 * 2 * jnp.log2(N)
