"""What does a turn of a loop find on the chip? Weights that it reads whole, where a turn fits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.compiled.arrays import CARRIED_SHARE
from autopart.costmodel.hardware.devices import XLA_TPU
from tests.cost.programs import f32, kernels, moves, nodes_of, plain_device, simulated

TURNS, ROWS, N = 32, 8, 1024
WEIGHT_BYTES = 4.0 * N * N


ROUNDED = 0.5
"""Of the bytes of weights that a loop's products read, what is left when they are rounded to bf16 before it."""

ROUNDING = 2.5
"""The bytes that count for that, in those of the weights: read, passed on in f32, written in bf16."""


def recurrent(w, x, precision=None):
    def turn(h, row):
        return jnp.tanh(jnp.dot(h, w, precision=precision) + row), None

    return jax.lax.scan(turn, jnp.zeros((ROWS, N)), x)[0]


def hbm_bytes(function, *arrays, on_chip_bytes):
    name = plain_device(f"held_loops_{on_chip_bytes}", around_matmul=XLA_TPU, on_chip_bytes=on_chip_bytes)
    return simulated(function, *arrays, device=name).hbm_bytes


@pytest.mark.parametrize(("room", "times"), [(1.0, 1), (0.6, TURNS)])
def test_weights_that_a_turn_reads_pass_memory_once_where_a_turn_fits_on_the_chip(room, times):
    assert (room * CARRIED_SHARE > ROUNDED) == (times == 1)
    found = hbm_bytes(recurrent, f32(N, N), f32(TURNS, ROWS, N), on_chip_bytes=room * WEIGHT_BYTES)
    assert found == pytest.approx((times * ROUNDED + ROUNDING) * WEIGHT_BYTES, rel=0.1)


@pytest.mark.parametrize(("precision", "each"), [("default", ROUNDED), ("highest", 1.0)])
def test_weights_of_products_at_default_precision_are_read_as_bf16_in_each_turn(precision, each):
    def function(w, x):
        return recurrent(w, x, precision)

    found = hbm_bytes(function, f32(N, N), f32(TURNS, ROWS, N), on_chip_bytes=0.5 * WEIGHT_BYTES)
    once = ROUNDING if each == ROUNDED else 0.0
    assert found == pytest.approx((TURNS * each + once) * WEIGHT_BYTES, rel=0.1)


def test_sums_of_gradients_that_a_loop_carries_are_there_once_beside_the_products_that_they_add():
    def summed(x, y):
        def turn(totals, pair):
            return [(k + 1.0) * pair[0].T @ pair[1] + total for k, total in enumerate(totals)], None

        return jax.lax.scan(turn, [jnp.zeros((N, N))] * 6, (x, y))[0]

    rows, sums = f32(TURNS, ROWS, N), 6 * WEIGHT_BYTES
    inside, outside = (hbm_bytes(summed, rows, rows, on_chip_bytes=room * sums) for room in (1.6, 1.2))
    assert inside < 3 * sums < TURNS * sums < outside


def test_parts_of_stacked_weights_pass_memory_in_each_turn():
    def stacked(w, x):
        return jax.lax.scan(lambda h, each: (jnp.tanh(h @ each), None), x, w)[0]

    found = hbm_bytes(stacked, f32(TURNS, N, N), f32(ROWS, N), on_chip_bytes=4 * WEIGHT_BYTES)
    assert found == pytest.approx(TURNS * WEIGHT_BYTES, rel=0.1)


def test_what_a_turn_adds_to_what_is_carried_is_written_in_each_turn():
    def added_up(x):
        return jax.lax.scan(lambda total, row: (total + jnp.tanh(row), None), jnp.zeros((N, N)), x)[0]

    found = hbm_bytes(added_up, f32(TURNS, N, N), on_chip_bytes=0.5 * WEIGHT_BYTES)
    assert found == pytest.approx(3 * TURNS * WEIGHT_BYTES, rel=0.1), "a row and the sum are read, the sum is written"


def test_a_table_counts_whole_if_rows_are_looked_up_before_all_of_it_is_read():
    """As a decoder does with tied embeddings."""

    def decode(table):
        def turn(token, _):
            logits = jnp.dot(table[token], table.T)
            return jnp.argmax(logits, axis=-1).astype(jnp.int32), None

        return jax.lax.scan(turn, jnp.zeros(ROWS, jnp.int32), length=TURNS)[0]

    table, table_bytes = jax.ShapeDtypeStruct((N, N), jnp.bfloat16), 2.0 * N * N
    rows_bytes = TURNS * 2.0 * ROWS * N
    assert hbm_bytes(decode, table, on_chip_bytes=1.5 * table_bytes) < 1.1 * table_bytes + rows_bytes
    found = hbm_bytes(decode, table, on_chip_bytes=0.9 * table_bytes)
    assert found == pytest.approx(TURNS * table_bytes, rel=0.2)


def decoded(*weights):
    """A loop of products of which each needs the largest element of the one before."""

    def turn(x, _):
        for w in weights:
            x = jnp.tanh(x / jnp.max(x) @ w)
        return x, None

    return jax.lax.scan(turn, jnp.ones((ROWS, N), jnp.bfloat16), length=TURNS)[0]


def loop_bytes(function, *shapes, on_chip_bytes):
    name = plain_device(
        f"brought_{on_chip_bytes}", around_matmul=XLA_TPU, on_chip_bytes=on_chip_bytes, assigns_on_chip=True
    )
    return simulated(function, *(jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in shapes), device=name).hbm_bytes


def test_an_argument_is_brought_to_the_chip_in_each_turn_while_the_product_before_it_runs():
    weight, room = 2.0 * N * N, 8.0 * N * N
    one = loop_bytes(decoded, (N, N), on_chip_bytes=room)
    assert one == pytest.approx(TURNS * weight, rel=0.1), "nothing runs before it"
    assert loop_bytes(decoded, (N, N), (N, N), on_chip_bytes=room) == pytest.approx(one, rel=0.1)
    large = loop_bytes(decoded, (N, N), (N, 4 * N), (4 * N, N), on_chip_bytes=4 * room)
    assert large == pytest.approx(5 * one, rel=0.1), "the second takes longer than what runs before it, not the third"
    full = loop_bytes(decoded, (N, N), (N, N), on_chip_bytes=0.5 * weight)
    assert full == pytest.approx(2 * one, rel=0.1), "there is no room for it"


def test_two_products_in_one_kernel_wait_for_both_weights():
    def pairs(up, down):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ up) @ down, None), jnp.ones((ROWS, N), jnp.bfloat16), length=8)[
            0
        ]

    weight = 2.0 * N * N
    assert loop_bytes(pairs, (N, N), (N, N), on_chip_bytes=4 * weight) == pytest.approx(16 * weight, rel=0.1)


def test_an_argument_stays_on_the_chip_if_what_runs_before_the_loop_takes_as_long():
    def after(w, x):
        return decoded(w), jnp.tanh(x @ x)

    def before(w, x):
        y = jnp.tanh(x @ x)[:ROWS, :N]
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), y, length=TURNS)[0]

    weight = 2.0 * N * N
    shapes = (N, N), (4 * N, 4 * N)
    there, again = (loop_bytes(f, *shapes, on_chip_bytes=100 * weight) for f in (before, after))
    assert there < again - 0.8 * TURNS * weight


def accumulated(xs, w):
    """A sum over turns of what devices hold parts of: it is reduced once, after the loop."""
    return jax.lax.fori_loop(0, 4, lambda i, total: total + jnp.tanh(xs[i] @ w).T @ xs[i], jnp.zeros((N, N))) * 2


def test_what_a_loop_leaves_is_reduced_where_the_loop_ends():
    rows = [ap.ManualPartition({"xs": 1}, axis="x")]
    found = simulated(accumulated, f32(4, 8 * N, N), f32(N, N), device="tpu_v3", ways=2, schedule=rows)
    (reduced,) = moves(found)
    turns = [k for k in kernels(found) if found.graph.nodes["scope"][k] > 0]
    (scaled,) = [k for k in nodes_of(found, "multiply") if found.graph.nodes["scope"][k] == 0]
    assert max(found.slot[turns]) < found.slot[reduced] <= found.slot[scaled]


@pytest.mark.parametrize(("rows", "held"), [(N, True), (256 * N, False)])
def test_sums_that_turns_hand_on_take_no_memory_where_all_that_a_turn_touches_stays_on_the_chip(rows, held):
    found = simulated(accumulated, f32(4, rows, N), f32(N, N), device="tpu_v5e")
    program = found.local.program
    carried = [v for v in range(program.value_count) if program.spec(int(program.value_op[v])).kind == "carry"]
    sums = [v for v in carried[::2] if program.type_of(v).shape == (N, N)]
    assert len(sums) == 1
    assert (found.buffers.bytes[sums[0]] == 0) == held
