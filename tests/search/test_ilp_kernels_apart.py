"""Which light ops does a bound take to run in kernels without products, and what does it count there?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autopart.core.partitioning import Partitioning
from autopart.costmodel.hardware.devices import CONV_SHARE, device, device_row
from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.program_arrays import program_arrays
from autopart.search.ilp.certain_traffic import certain_traffic
from autopart.search.ilp.fusion_regions import Regions, regions
from autopart.search.ilp.kernel_order import kernel_order
from autopart.search.ilp.kernel_shares import kernel_shares, whole_seconds
from experiments.ilp.small import SMALL, f32
from tests.search.test_ilp import model_of, task_of
from tests.search.test_ilp_least_costs import began


def parts_of(fun, *args) -> tuple[Partitioning, ProgramArrays, Regions]:
    start = began(fun, args, "tpu_v3")
    arrays = program_arrays(start.program, device("tpu_v3"))
    return start, arrays, regions(arrays, 8, device("tpu_v3"))


def ops_of(start: Partitioning, kind: str) -> list[int]:
    return [op for op in range(start.program.op_count) if start.program.spec(op).kind == kind]


def test_what_waits_for_a_mean_runs_in_no_products_kernel():
    start, arrays, parts = parts_of(
        lambda x, w: (lambda h: ((h - h.mean(0)) ** 2).sum(0))(x @ w), f32(512, 256), f32(256, 512)
    )
    (product,), (mean, variance) = ops_of(start, "dot_general"), ops_of(start, "reduce")
    assert parts.hosts.of[mean] == {product}
    assert parts.hosts.of[variance] == set()
    assert parts.hosts.only[mean] == product
    row = device_row(device("tpu_v3"))
    by_itself, moved = kernel_shares(arrays, parts, *certain_traffic(arrays, parts), row)
    assert by_itself.launched[[mean, variance]].tolist() == [0, 1]
    assert moved.launched[[mean, variance]].tolist() == [1, 1], "a kernel of its own, where the product is moved"
    assert by_itself.bytes[variance] == 1, "nothing hides its traffic"


def test_what_needs_another_product_on_the_way_does_not_run_with_the_first():
    start, _, parts = parts_of(lambda x, w: (lambda h: h + jnp.tanh(h @ w))(x @ w), f32(512, 512), f32(512, 512))
    first, second = ops_of(start, "dot_general")
    (total,) = ops_of(start, "add")
    assert parts.hosts.of[total] == {second}
    assert first not in parts.hosts.of[total]


def test_array_made_of_two_for_several_readers_is_written_and_one_with_a_bias_is_not():
    def scores(q, k, d, bias):
        made = (q @ k) * (q @ d)
        halved = jnp.tanh(q @ k.T) * (d @ q) * 0.5
        shown = q @ k.T + bias
        return made @ k, made.sum(), halved @ k, halved.sum(), shown @ d, shown.T @ q

    start, _, parts = parts_of(scores, *(f32(512, 512),) * 3, f32(512))
    product, _, halved = ops_of(start, "multiply")
    (biased,) = ops_of(start, "add")
    assert not parts.fusable[product]
    assert parts.fusable[halved], "a kernel of several ops may be merged into both that read it"
    assert parts.fusable[biased], "a bias is spread: readers compute it from one large array"


def test_array_made_of_two_that_is_scaled_last_for_products_alone_may_be_computed_in_them():
    def scores(q, k, d):
        made = jnp.tanh(q @ k) * (q @ d) * 0.5
        return made @ k, made.T @ q

    start, _, parts = parts_of(scores, *(f32(512, 512),) * 3)
    assert parts.fusable[ops_of(start, "multiply")].all()


def test_update_pays_for_its_traffic_where_its_gradient_is_reduced():
    small = SMALL["perceptron"]
    start = began(small.fun, small.args, "tpu_v3")
    model = model_of(task_of(start))
    updates = [op for op in ops_of(start, "subtract") if op in model.parts.hosts.only]
    assert updates
    for op in updates:
        (pair,) = np.flatnonzero(model.between.reader == op)
        product = int(model.between.product[pair])
        made = model.nodes.strategies[model.nodes.of_op[product]]
        updated = model.nodes.strategies[model.nodes.of_op[op]]
        seconds = model.between.seconds[model.between.kind[pair]]
        whole = made.native[0].index((0, 0))
        assert (seconds[whole] == 0).all(), "nothing is pending"
        pending = next(i for i, label in enumerate(made.native[0]) if label[0] > 16 and label[1] == 0)
        at = updated.native[0].index((0, 0))
        parameter_s = 3 * start.program.type_of(int(start.program.result_ptr[op])).bytes / (450e9 * 0.936)
        assert 0.9 * parameter_s <= seconds[pending, at] <= 1.2 * parameter_s


def test_sum_of_what_is_moved_from_a_product_reads_it_at_the_rate_of_one_stream():
    start = began(lambda x, w: jnp.sum(jnp.maximum(x @ w, 0.0), axis=0), (f32(2048, 1024), f32(1024, 2048)), "tpu_v3")
    model = model_of(task_of(start))
    ((product, reader),) = zip(model.between.product.tolist(), model.between.reader.tolist(), strict=True)
    made, read = (model.nodes.strategies[model.nodes.of_op[op]] for op in (product, reader))
    seconds = model.between.seconds[0]
    pending = next(i for i, label in enumerate(made.native[0]) if label[0] > 16 and label[1] == 0)
    at = read.required[0].index((0, 0))
    stream_s = 2048 * 2048 * 4 / (450e9 * 0.936 * 0.5)
    assert stream_s <= seconds[pending, at] <= 1.2 * stream_s
    assert np.isfinite(seconds).all()


def test_what_another_product_needs_has_ended_before_what_reads_that_product():
    start, _, parts = parts_of(
        lambda x, w: (lambda h: (h.sum(0), jnp.tanh((h - h.mean(0)) @ w) + h))(x @ w), f32(512, 512), f32(512, 512)
    )
    first, second = ops_of(start, "dot_general")
    added, (total,) = ops_of(start, "reduce"), ops_of(start, "add")
    mean = next(op for op in added if parts.order.after(second, op))
    beside = next(op for op in added if op != mean)
    assert parts.order.after(total, first)
    assert parts.order.after(total, mean), "it reads the second product, or runs in its kernel"
    assert not parts.order.after(total, beside), "nothing that it reads needs this sum"
    assert not parts.order.after(mean, first), "it may run in the product's kernel"
    assert parts.order.apart(first, second)


def test_readers_of_a_vector_do_not_run_together_for_it_and_those_of_an_array_may():
    def fun(x, y, scale):
        spread = jnp.exp(scale)
        return (x * spread).sum(0), (y * spread).sum(0), (x * 2.0).max(0)

    start, _, parts = parts_of(fun, f32(512, 1024), f32(512, 1024), f32(1024))
    first, second, largest = ops_of(start, "reduce")
    (made,) = ops_of(start, "exponential")
    assert parts.of_op[first] != parts.of_op[second]
    assert parts.of_op[first] == parts.of_op[largest]
    assert not parts.leaks[made], "it is written before it is spread"
    over_x, over_y = (op for op in ops_of(start, "broadcast_in_dim") if parts.leaks[op])
    assert parts.of_op[over_x] == parts.of_op[over_y] == parts.of_op[made], "each of their kernels may spread it"
    few, _, together = parts_of(fun, f32(4, 1024), f32(4, 1024), f32(1024))
    first, second, _ = ops_of(few, "reduce")
    assert together.of_op[first] == together.of_op[second], "8 devices may walk through no more than the vector has"


def test_convolution_with_few_features_counts_by_its_unfilled_tiles():
    dims = ("NHWC", "HWIO", "NHWC")
    start, arrays, parts = parts_of(
        lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=dims),
        f32(64, 128, 128, 3), f32(3, 3, 3, 32),
    )  # fmt: skip
    (op,) = ops_of(start, "convolution")
    row = device_row(device("tpu_v3"))
    work_s = whole_seconds(arrays, certain_traffic(arrays, parts)[0], row)[0]
    passes = arrays.specs["passes"][arrays.ops["spec"][op]]
    flop = arrays.ops["matrix_flop"][op]
    in_full = passes * flop / (row[arrays.ops["matrix_dtype"][op]] * row[CONV_SHARE])
    assert work_s[op] == pytest.approx(in_full * 128 / 32 * 128 / 27), "three features of nine taps, of 128"


def test_of_a_large_program_the_nearest_kernels_are_known_and_none_is_made_up():
    def layers(x, *weights):
        for w in weights:
            x = jnp.tanh(x @ w) / x.sum(0)
        return x

    _, arrays, parts = parts_of(layers, f32(64, 64), *[f32(64, 64)] * 4)
    ops, stations = range(len(arrays.ops)), np.flatnonzero(parts.station).tolist()
    near = 3
    some = kernel_order(arrays, parts.base, parts.station, near * len(arrays.ops))
    before = np.cumsum(parts.station)
    found = [(op, other) for op in ops for other in stations if parts.order.after(op, other)]
    kept = [(op, other) for op in ops for other in stations if some.after(op, other)]
    assert kept == [(op, other) for op, other in found if before[op] - before[other] < near]
    assert 0 < len(kept) < len(found)
