"""What XLA:GPU does besides: combining by dependence, gradients last, values that are dear to compute again, shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.costmodel import SimulatorOptions, collective_seconds, estimate, mesh_links
from autopart.costmodel.compiled.slots import op_of
from autopart.costmodel.hardware.devices import device
from tests.cost.programs import between, f32, moves, nodes_of, simulated

WAYS, N = 4, 512
BATCH, FSDP = ap.ManualPartition({"x": 0}, axis="x"), ap.ManualPartition({"weights": 0}, axis="x")
LINKS = mesh_links(ap.Mesh({"x": WAYS}, device="h100"))


def loss(weights, x):
    for w in weights:
        x = jnp.sin(x @ w)
    return x.sum()


def gradients(weights, x):
    return jax.grad(loss)(weights, x)


def on_h100(function, *args, schedule, ways=WAYS):
    return simulated(function, *args, device="h100", ways=ways, schedule=schedule)


def together(kind, sent_bytes):
    return collective_seconds(LINKS, kind, sent_bytes, "x")


def test_gathers_run_as_one_in_front_of_the_first_that_is_wanted():
    found = on_h100(loss, [f32(N, N)] * 3, f32(4096, N), schedule=[BATCH, FSDP])
    *gathers, _ = moves(found)
    assert len(gathers) == 3
    assert len({int(found.slot[k]) for k in gathers}) == 1
    links_s = together("all_gather", 3 * 4 * N * N / WAYS) + together("all_reduce", 4)
    assert found.collective_s == pytest.approx(links_s)


def test_what_they_leave_limits_how_many_run_as_one():
    side, limit = 2048, device("h100").combine_bytes
    found = on_h100(loss, [f32(side, side)] * 3, f32(4096, side), schedule=[BATCH, FSDP])
    *gathers, _ = moves(found)
    assert 4 * side * side < limit < 2 * 4 * side * side
    assert len({int(found.slot[k]) for k in gathers}) == 3


def test_a_reduction_that_another_one_is_made_of_does_not_run_with_it():
    def chained(x, a, b):
        return (x @ a) @ b

    tiled = [ap.ManualPartition({"x": 1, "a": 0}, axis="x"), ap.ManualPartition({"b": 0}, axis="x")]
    found = on_h100(chained, f32(N, N), f32(N, N), f32(N, N), schedule=tiled)
    assert len({int(found.slot[k]) for k in moves(found)}) == len(moves(found))


def last_products(found):
    """(slots of the products of gradients of weights, the slot of the last other one)."""
    products = nodes_of(found, "dot_general")
    of_weights = {k for k in products if found.graph.nodes["written"][k] == 4 * N * N}
    return [found.slot[k] for k in products if k in of_weights], max(
        found.slot[k] for k in products if k not in of_weights
    )


def test_gradients_of_weights_come_behind_all_other_products_where_they_are_reduced():
    weights, x = [f32(N, N)] * 3, f32(4096, N)
    late, last = last_products(on_h100(gradients, weights, x, schedule=[BATCH]))
    assert len(late) == 3
    assert min(op_of(slot) for slot in late) >= op_of(last)
    alone, last = last_products(on_h100(gradients, weights, x, schedule=[], ways=1))
    assert min(alone) < last


def test_they_keep_what_they_are_made_of_alive():
    weights, x = [f32(N, N)] * 6, f32(1 << 16, N)
    one = on_h100(gradients, weights, f32((1 << 16) // WAYS, N), schedule=[], ways=1)
    several = on_h100(gradients, weights, x, schedule=[BATCH])
    assert between(several) > 1.05 * between(one)


@pytest.mark.parametrize(("dtype", "written"), [(jnp.bfloat16, True), (jnp.float32, False)])
def test_a_tanh_is_computed_again_where_that_takes_less_than_moving_it(dtype, written):
    def gelu(w, x):
        return jax.grad(lambda w: (jax.nn.gelu(x @ w) @ w.T).astype(jnp.float32).sum())(w)

    w, x = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((N, N), (1 << 16, N)))
    found = on_h100(gelu, w, x, schedule=[], ways=1)
    assert bool(nodes_of(found, "tanh")) == written


@pytest.mark.parametrize(("shape", "in_place"), [((1 << 16, N), True), ((64, 1 << 10, N), False)])
def test_what_is_made_of_a_product_is_in_its_place_if_it_has_its_shape(shape, in_place):
    def function(w, x):
        return jnp.sin(x @ w) @ w

    found = on_h100(function, f32(N, N), f32(*shape), schedule=[], ways=1)
    beside = device("h100").library.workspace_bytes if in_place else 4 * np.prod(shape)
    assert between(found) == 4 * np.prod(shape) + beside


def test_steps_of_gpus_have_collectives_beside_compute():
    found = on_h100(gradients, [f32(2048, 2048)] * 3, f32(1 << 15, 2048), schedule=[BATCH])
    assert found.step_s == found.overlapped_s < found.serial_s


def scanned(weights, x):
    """A step of equal layers in a scan; parameters are stored in parts, so each trip gathers and each reduces."""

    def loss(weights):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return h.sum()

    return jax.tree.map(lambda w, g: w - g, weights, jax.grad(loss)(weights))


STORED = ap.ManualPartition({"weights": 1}, axis="x")


def in_loops(layers, rows, **options):
    low = ap.jit(scanned, ap.Mesh({"x": WAYS}, device="h100"), [BATCH, STORED], donate_argnums=0).lower(
        f32(layers, 2048, 2048), f32(rows, 2048)
    )
    return estimate(low.program, options=SimulatorOptions(**options))


def test_reductions_that_only_the_end_of_a_trip_reads_run_beside_its_other_kernels():
    found = in_loops(8, 1 << 17)
    gathers, reductions = found.collectives["all_gather"].seconds, found.collectives["reduce_scatter"].seconds
    assert min(gathers, reductions) > 0
    assert found.step_s <= found.compute_s + gathers + reductions / 8 * 1.01
    assert found.step_s >= found.compute_s + 0.4 * gathers


def test_what_follows_a_loop_waits_for_all_that_the_loop_reduces():
    def step(weights, x):
        def loss(weights):
            h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
            return h.sum()

        return jax.grad(loss)(weights), jnp.tanh(x @ x.T @ x)

    found = on_h100(step, f32(4, 2048, 2048), f32(1 << 12, 2048), schedule=[BATCH])
    sent = [k for k in moves(found) if found.graph.nodes["scope"][k] != 0]
    after = [k for k in range(max(sent) + 1, len(found.slot)) if found.graph.nodes["scope"][k] == 0]
    ends = max(found.node_start_s[k] + found.node_s[k] * found.node_trips[k] for k in sent)
    assert sent
    assert after
    assert all(found.node_start_s[k] >= ends - 1e-9 for k in after if k not in moves(found))


def test_gathers_of_parameters_cast_to_bf16_are_one():
    def step(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w.astype(jnp.bfloat16))
        return x

    x = jax.ShapeDtypeStruct((1 << 15, 256), jnp.bfloat16)
    found = on_h100(step, [f32(256, 256)] * 4, x, schedule=[BATCH, FSDP])
    assert len({int(found.slot[k]) for k in moves(found)}) == 1


def test_gathers_of_what_a_loop_does_not_change_run_a_trip_ahead_where_asked():
    found, ahead = in_loops(8, 1 << 17), in_loops(8, 1 << 17, pipelined=True)
    assert ahead.step_s <= ahead.compute_s + ahead.collective_s / 8 * 1.01 < found.step_s


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("rows", [1 << 10, 1 << 14, 1 << 17])
def test_loops_hide_at_most_their_collectives(rows, ahead):
    found = in_loops(6, rows, pipelined=ahead)
    assert max(found.compute_s, found.collective_s) <= found.overlapped_s * (1 + 1e-9)
    assert found.overlapped_s <= found.serial_s * (1 + 1e-9)


@pytest.mark.parametrize("turned", [False, True])
def test_what_products_read_in_another_order_than_it_lies_is_written_twice(turned):
    def step(q, k, v):
        scores = jax.lax.batch_matmul(q, k)
        p = jnp.sin(scores.swapaxes(1, 2) if turned else scores)
        return jax.lax.batch_matmul(p, v), jnp.cos(p).sum()

    found = on_h100(step, f32(64, 256, 64), f32(64, 64, 256), f32(64, 256, 64), schedule=[], ways=1)
    assert max(found.buffers.bytes) == (2 if turned else 1) * 4 * 64 * 256 * 256


@pytest.mark.parametrize("stay", [(64,), (16, 4)])
def test_an_operand_with_two_dims_that_stay_is_transposed_for_its_product(stay):
    def step(k, q, v):
        p = jnp.sin(jax.lax.dot_general(k, q, (((2,), (1,)), ((0,), (0,)))))
        return jax.lax.dot_general(p, v, (((1,), (1,)), ((0,), (0,)))), jnp.cos(p).sum()

    found = on_h100(step, f32(64, 256, 32), f32(64, 32, *stay), f32(64, 256, 32), schedule=[], ways=1)
    assert max(found.buffers.bytes) == len(stay) * 4 * 64 * 256 * 64


@pytest.mark.parametrize("ways", [1, WAYS])
def test_a_product_runs_right_before_it_is_read_where_collectives_hide(ways):
    def step(weights, x):
        first, last = x @ weights[0], jnp.sin(jnp.sin(x @ weights[1]) @ weights[2])
        return (first * last).sum()

    found = on_h100(step, [f32(N, N)] * 3, f32(4096, N), schedule=[BATCH] if ways > 1 else [], ways=ways)
    products = nodes_of(found, "dot_general")
    assert (found.slot[products[0]] > found.slot[products[1]]) == (ways > 1)


def test_a_gather_takes_memory_from_when_it_starts():
    weights, x = [f32(2048, 2048)] * 3, f32(1 << 15, 2048)
    found = on_h100(loss, weights, x, schedule=[BATCH, FSDP])
    gathers = [k for k in moves(found) if found.graph.nodes["written"][k] == 4 * 2048 * 2048]
    early = [found.buffers.made[found.graph.write_buffer[found.graph.write_ptr[k]]] < found.slot[k] for k in gathers]
    assert sum(early) >= 2


def test_look_ups_are_computed_inside_their_readers():
    def function(table, i):
        return jnp.tanh(table[i]).sum(1)

    found = on_h100(function, f32(4096, N), jax.ShapeDtypeStruct((1 << 16,), "int32"), schedule=[], ways=1)
    assert between(found) < 4 * N * (1 << 16)
    assert not nodes_of(found, "gather")


def test_reductions_that_the_next_trip_reads_are_waited_for():
    def recurrence(w, x):
        def step(h, row):
            h = jnp.tanh(row + h @ w)
            return h, None

        return jax.lax.scan(step, jnp.zeros_like(x[0]), x)[0]

    found = on_h100(recurrence, f32(2048, 2048), f32(8, 4096, 2048), schedule=[ap.ManualPartition({"w": 0}, axis="x")])
    assert found.collective_s > 0.5 * found.compute_s
    assert found.step_s >= 0.99 * found.serial_s


def test_gradients_of_weights_in_a_loop_come_behind_its_other_products():
    def step(weights, x):
        def loss(weights):
            layer = jax.checkpoint(lambda h, w: (jnp.sin(jnp.sin(h @ w["up"]) @ w["down"]), None))
            return jax.lax.scan(layer, x, weights)[0].sum()

        return jax.grad(loss)(weights)

    weights = {"up": f32(4, N, 2 * N), "down": f32(4, 2 * N, N)}
    found = on_h100(step, weights, f32(4096, N), schedule=[], ways=1)
    back = max(found.graph.nodes["scope"])
    products = [k for k in nodes_of(found, "dot_general") if found.graph.nodes["scope"][k] == back]
    of_weights = [k for k in products if found.graph.nodes["written"][k] == 4 * N * 2 * N]
    assert (len(products), len(of_weights)) == (6, 2)
    last = max(found.slot[k] for k in products if k not in of_weights)
    assert all(op_of(found.slot[k]) >= op_of(last) for k in of_weights)


def found_so(run, column):
    """The ops whose values are so by a column of `LocalArrays.values`."""
    program = run.local.program
    return [program.spec(int(program.value_op[v])).kind for v in np.flatnonzero(run.arrays.values[column])]


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_is_laid_anew_where_its_order_meets_another(turned):
    def step(q, k, dy):
        p = jax.lax.batch_matmul(q, k)
        return jnp.sin(p.swapaxes(1, 2) if turned else p) + jnp.cos(jax.lax.batch_matmul(dy, k))

    run = on_h100(step, f32(64, 256, 256), f32(64, 256, 256), f32(64, 256, 256), schedule=[], ways=1)
    assert found_so(run, "laid_anew") == ["dot_general"] * turned
    assert not found_so(run, "turned"), "a transpose is the layout of what a product left"


@pytest.mark.parametrize("several", [False, True])
def test_what_is_turned_is_written_where_several_kernels_read_it(several):
    def step(x, w):
        y = jnp.sin(x.swapaxes(1, 2))
        return jnp.cos(y).sum(1), y.sum(2) if several else 0

    run = on_h100(step, f32(64, 256, 256), f32(64, 256, 256), schedule=[], ways=1)
    assert found_so(run, "turned") == ["transpose"]
    assert bool(nodes_of(run, "sine", "transpose")) == several
