"""Is it said how much of a program's flop an axis divides, and where the division was lost?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import autopart as ap

MESH = ap.Mesh({"batch": 4, "model": 2})
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")
MP = ap.ManualPartition({"w": 1}, axis="model", name="MP")


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")


def metadata(fun, args, schedule, mesh=MESH, **options):
    return ap.jit(fun, mesh, schedule, **options).lower(*args).metadata


def accumulate(split):
    """Gradients of a two-layer loss, added up over microbatches that `split` makes of x."""

    def step(w, x):
        def micro(total, m):
            return total + jax.grad(lambda w: (jnp.tanh(m @ w) ** 2).mean())(w), None

        return w - lax.scan(micro, jnp.zeros_like(w), split(x))[0]

    return step


def in_blocks(count):
    return accumulate(lambda x: x.reshape(count, -1, x.shape[1]))


def interleaved(count):
    return accumulate(lambda x: x.reshape(-1, count, x.shape[1]).swapaxes(0, 1))


def row_by_row(w, x):
    return lax.map(lambda row: jnp.tanh(row @ w).sum(), x)


def in_two(x):
    return jnp.sort(jnp.tanh(x.reshape(2, -1, x.shape[1])), axis=1)


def lstm(w, xs):
    """xs[time, batch, features]."""

    def cell(state, x):
        hidden, memory = state
        i, f, o, g = jnp.split(jnp.concatenate([x, hidden], 1) @ w, 4, axis=1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(memory), memory), None

    zero = jnp.zeros((xs.shape[1], w.shape[1] // 4))
    return lax.scan(cell, (zero, zero), xs)[0][0].sum()


ACCUMULATION = f32(32, 32), f32(256, 32)
LSTM = f32(24, 64), f32(12, 8, 8)
TIME, ROWS = (ap.ManualPartition({"xs": d}, axis="batch") for d in (0, 1))
LOST = {
    "one row at a time": (row_by_row, ACCUMULATION, BP, "dynamic_slice of f32[256,32]"),
    "more devices than blocks": (in_two, (f32(256, 32),), BP, "reshape of f32[256,32]"),
    "time steps of an LSTM": (jax.grad(lstm), LSTM, TIME, "dynamic_slice of f32[12,8,8]"),
    "sort along the tiled dim": (lambda x: jnp.sort(x, axis=0), (f32(8, 3),), BP, "sort of f32[8,3]"),
}


@pytest.mark.parametrize("case", LOST)
def test_axis_that_divides_nothing_is_reported_with_the_op_where_it_was_lost(case):
    fun, args, tactic, lost_at = LOST[case]
    found = metadata(fun, args, [tactic])
    assert found.flop_divided["batch"] < 0.01
    (note,) = found.tactics[0].notes
    name = next(iter(tactic.inputs))
    assert note.startswith(f"batch: used by {name}, divides ")
    assert f"lost at {lost_at}, " in note
    assert "test_flop_divided.py:" in note
    assert note in str(found).splitlines()


@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("device", [None, "tpu_v3"])
def test_strict_mode_raises_with_the_text_of_the_note(case, device):
    fun, args, tactic, _ = LOST[case]
    mesh = ap.Mesh({"batch": 4}, device=device)
    (note,) = metadata(fun, args, [tactic], mesh).tactics[0].notes
    with pytest.raises(ap.BlockedError) as error:
        metadata(fun, args, [tactic], mesh, strict=True)
    assert error.value.why == note
    assert "tactic 1 of 1" in error.value.by


@pytest.mark.parametrize(
    ("fun", "args", "tactic"),
    [
        *((split, ACCUMULATION, BP) for split in (interleaved(16), in_blocks(16), in_blocks(2))),
        (jax.grad(lstm), LSTM, ROWS),
    ],
    ids=["rows", "blocks", "more devices than blocks", "lstm"],
)
def test_loops_over_another_dim_than_the_tiled_one_are_divided(fun, args, tactic):
    found = metadata(fun, args, [tactic], strict=True)
    assert found.flop_divided["batch"] > 0.9
    assert found.tactics[0].notes == ()


def test_share_is_the_flop_of_divided_ops_over_that_of_all():
    def fun(w, x, y, z):
        return x @ w, y @ w, z @ w @ w  # 3 of 4 equal products are whole over "batch", none over "model"

    args = f32(64, 64), f32(32, 64), f32(32, 64), f32(32, 64)
    found = metadata(fun, args, [BP, MP])
    assert [t.flop_divided["batch"] for t in found.tactics] == [0.25, 0.25]
    assert found.flop_divided == {"batch": 0.25, "model": found.tactics[1].flop_divided["model"]}
    assert found.tactics[0].flop_divided["model"] == 0
    assert [n.split(",")[0] for n in found.tactics[0].notes] == ["batch: used by x"]


def test_op_in_a_loop_counts_as_often_as_it_runs():
    def fun(w, x, y):
        return lax.fori_loop(0, 3, lambda _, x: x @ w, x), y @ w

    share = metadata(fun, (f32(64, 64), f32(64, 64), f32(64, 64)), [BP]).flop_divided["batch"]
    assert share == pytest.approx(0.75, rel=1e-4)  # the loop's counter costs a few


def test_partial_division_is_a_note_and_no_error():
    def fun(w, x):
        return x @ w, jnp.cumsum(x @ w, axis=0) @ w @ w @ w

    found = metadata(fun, (f32(64, 64), f32(64, 64)), [BP], strict=True)
    assert 0.01 < found.flop_divided["batch"] < 0.5
    assert "lost at reduce_window of f32[64,64]" in found.tactics[0].notes[0]


def test_axis_that_stores_state_alone_is_noted_and_no_error():
    def fun(params, momentum, x):
        grads = ap.tag("grads", jax.grad(lambda w: jnp.tanh(x @ w).sum())(params))
        momentum = 0.9 * momentum + grads
        return params - momentum, momentum

    zero = ap.ManualPartition({"params": ap.REPLICATED, "grads": ap.REPLICATED, "momentum": 0}, axis="model")
    found = metadata(fun, (f32(16, 16), f32(16, 16), f32(512, 16)), [BP, zero], strict=True, donate_argnums=(0, 1))
    assert found.flop_divided["model"] < 0.01
    assert "model: used by state alone (momentum), divides" in found.tactics[1].notes[0]


def test_strict_mode_asks_at_the_end_of_the_schedule():
    def fun(w, x, ids):
        return jnp.sort(ids, axis=0), x @ w

    first = ap.ManualPartition({"ids": 0}, axis="batch", name="ids")
    args = f32(64, 64), f32(64, 64), f32(8, 3)
    assert metadata(fun, args, [first, BP], strict=True).flop_divided["batch"] > 0.5
    with pytest.raises(ap.BlockedError, match='"ids"'):
        metadata(fun, args, [first, MP], strict=True)


def test_tagged_values_are_named():
    def fun(x):
        return jnp.sort(ap.tag("scores", x * 2), axis=0)

    (note,) = metadata(fun, (f32(8, 3),), [ap.ManualPartition({"scores": 0}, axis="batch")]).tactics[0].notes
    assert "used by" in note
    assert "scores" in note.split(",")[0] + note.split(",")[1]


def test_axis_that_is_not_used_and_a_program_without_flop_get_no_note():
    found = metadata(lambda x: x.T, (f32(8, 8),), [BP], strict=True)
    assert found.tactics[0].notes == ()
    assert metadata(lambda x: x @ x, (f32(8, 8),), []).flop_divided == {"batch": 0, "model": 0}
    assert "model" not in "".join(metadata(lambda x: x * 2, (f32(8, 8),), [BP]).tactics[0].notes)


def test_a_program_without_flop_divides_none_and_says_so():
    found = metadata(lambda x: x.T, (f32(8, 8),), [BP])
    assert found.flop_divided == found.tactics[0].flop_divided == {}
    assert "flop divided: the program has none" in str(found)
    assert "%" not in str(found).split("flop divided")[1].splitlines()[0]
