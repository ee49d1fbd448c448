"""Does `Lowered.interpret` run each loop nest in sequence, from the table and nothing else?"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from autopart.core.op import MAX, SUM, TileMapping
from autopart.core.table.temporal import combined, interpret, loop_nest
from autopart.spmd.emission.single_ops import SingleOps

MESH = ap.Mesh({"a": 4, "b": 2})


def matmul(x, w):
    return jnp.tanh(x @ w)


X = np.arange(64, dtype="f4").reshape(8, 8) % 5
W = np.arange(64, dtype="f4").reshape(8, 8) % 3


def over_a_and_b():
    schedule = [ap.ManualPartition({"w": 0}, axis="a"), ap.ManualPartition({"w": 0}, axis="b")]
    return ap.jit(lambda x, w: x @ w, MESH, schedule).lower(X, W)


def dot_of(program) -> int:
    return next(op for op in range(program.op_count) if program.spec(op).kind == "dot_general")


def test_each_tile_runs_once_in_the_order_of_its_nest_and_sums_are_added():
    lowered = over_a_and_b()
    partitioning, seen = lowered.scheduled.partitioning, []
    ops = SingleOps(partitioning)

    def run(op, nest, operands, place):
        results = ops.run(op, nest, operands, place)
        if op == dot_of(partitioning.program):
            seen.append((place, operands[1].shape, results[0].shape))
        return results

    (found,) = interpret(partitioning, [X, W], run)
    assert [place for place, _, _ in seen] == [(i, j) for i in range(4) for j in range(2)]
    assert {(w, y) for _, w, y in seen} == {((1, 8), (8, 8))}
    np.testing.assert_array_equal(found, X @ W)


def test_the_axis_that_entered_first_is_the_outer_loop():
    partitioning = over_a_and_b().scheduled.partitioning
    assert [axis for axis, _ in loop_nest(partitioning, dot_of(partitioning.program))] == [0, 1]
    swapped = [ap.ManualPartition({"w": 0}, axis="b"), ap.ManualPartition({"w": 0}, axis="a")]
    partitioning = ap.jit(lambda x, w: x @ w, MESH, swapped).lower(X, W).scheduled.partitioning
    assert [axis for axis, _ in loop_nest(partitioning, dot_of(partitioning.program))] == [1, 0]


def test_nothing_but_the_table_is_read():
    lowered = ap.jit(matmul, MESH, [ap.ManualPartition({"x": 0, "w": 1}, axis="a")]).lower(X, W)
    bare = dataclasses.replace(lowered, scheduled=dataclasses.replace(lowered.scheduled, device_local=None))
    np.testing.assert_allclose(bare.interpret(X, W), matmul(X, W), rtol=1e-6)


def test_a_false_mapping_gives_false_numbers():
    """The reference is no tautology: where a table takes the largest part for their sum, the numbers say so."""
    partitioning = over_a_and_b().scheduled.partitioning.copy()
    spec = partitioning.program.op_spec[dot_of(partitioning.program)]
    of = list(partitioning.table.of)
    of[spec] = tuple(TileMapping(m.operands, (MAX,), m.extent) if m.results == (SUM,) else m for m in of[spec])
    partitioning.table = dataclasses.replace(partitioning.table, of=tuple(of))
    (found,) = interpret(partitioning, [X, W], SingleOps(partitioning).run)
    np.testing.assert_array_equal(found, np.max(X.T[:, :, None] * W[:, None, :], axis=0))


def test_loops_and_branches_run_as_often_as_the_data_say():
    def program(x, n):
        def body(state):
            i, y = state
            return i + 1, lax.cond(jnp.sum(y) > 100, lambda v: v - 7, lambda v: v * 2, y)

        turns = lax.while_loop(lambda state: state[0] < n, body, (0, x))[1]
        return lax.switch(n, [lambda v: v, jnp.negative, lambda v: v + 1], turns), lax.scan(
            lambda c, row: (c + row, c), jnp.zeros_like(x[0]), x
        )

    lowered = ap.jit(program, MESH, [ap.ManualPartition({"x": 1}, axis="a")]).lower(X, 3)
    for turns in (0, 1, 5, 9):
        found, expected = lowered.interpret(X, turns), program(X, turns)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_keys_halves_and_named_arguments_come_and_go_as_under_jit():
    def program(key, *, h):
        key, other = jax.random.split(key)
        return {"key": key, "h": h * 2 + jax.random.normal(other, h.shape, h.dtype)}

    h = jnp.ones((8, 4), jnp.bfloat16)
    lowered = ap.jit(program, MESH, [ap.ManualPartition({"h": 0}, axis="a")]).lower(jax.random.key(3), h=h)
    found, expected = lowered.interpret(jax.random.key(3), h=h), jax.jit(program)(jax.random.key(3), h=h)
    assert found["key"] == expected["key"]
    assert found["h"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(found["h"].astype("f4"), expected["h"].astype("f4"))


def test_a_host_callback_runs_once():
    said = []

    def program(x):
        jax.debug.callback(lambda s: said.append(float(s)), jnp.sum(x))
        return x * 2

    lowered = ap.jit(program, MESH, [ap.ManualPartition({"x": 0}, axis="a")]).lower(X)
    np.testing.assert_array_equal(lowered.interpret(X), X * 2)
    jax.effects_barrier()
    assert said == [float(X.sum())]


def test_double_precision_stays_double():
    with jax.enable_x64(True):
        x = np.linspace(0, 1, 8)
        lowered = ap.jit(lambda x: x / 3, MESH, [ap.ManualPartition({"x": 0}, axis="a")]).lower(x)
        found = lowered.interpret(x)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, x / 3)


def test_a_donated_argument_is_still_there():
    x = jnp.ones((8, 8))
    lowered = ap.jit(lambda x: x + 1, MESH, [ap.ManualPartition({"x": 0}, axis="a")], donate_argnums=0).lower(x)
    np.testing.assert_array_equal(lowered.interpret(x), x + 1)


def test_a_program_lowered_for_tpu_runs_here():
    mesh = ap.Mesh({"a": 4}, device="tpu_v3")
    lowered = ap.jit(jnp.linalg.inv, mesh, []).lower(X + 9 * np.eye(8, dtype="f4"))
    np.testing.assert_allclose(lowered.interpret(2 * np.eye(8, dtype="f4")), np.eye(8) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((X,), "another pytree"),
        ((X, W[:4]), "it was lowered for [8, 8]"),
        ((X, "text"), "'text'"),
        ((X, W.astype("i4")), "of int32"),
    ],
)
def test_other_arguments_than_it_was_lowered_for_are_refused(args, says):
    lowered = ap.jit(matmul, MESH, []).lower(X, W)
    with pytest.raises(ap.CallError, match=says.replace("[", r"\[")):
        lowered.interpret(*args)


def test_traced_arguments_are_refused():
    lowered = ap.jit(matmul, MESH, []).lower(X, W)
    with pytest.raises(ap.CallError, match="tracing"):
        jax.jit(lowered.interpret)(X, W)


@pytest.mark.parametrize("action", range(17, 23))
def test_parts_are_reduced_in_their_own_type(action):
    halves = [np.asarray(jnp.asarray(v, jnp.bfloat16)) for v in ([3.0, 300.0], [1.0, 1.0])]
    parts = [h > 2 for h in halves] if action >= 21 else halves
    assert combined(parts, action).dtype == parts[0].dtype
