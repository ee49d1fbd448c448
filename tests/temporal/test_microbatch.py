"""Does `ap.Microbatch` run a step in a loop over parts of its batch, and say so where it cannot?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from tests.prompt import slow

MESH = ap.Mesh({"d": 4})
BP = ap.ManualPartition({"x": 0, "y": 0}, axis="d")
RNG = np.random.default_rng(0)
W = {"a": RNG.normal(size=(4, 8)).astype("f4"), "b": RNG.normal(size=(8, 2)).astype("f4")}
X, Y = RNG.normal(size=(32, 4)).astype("f4"), RNG.normal(size=(32, 2)).astype("f4")


def step(w, x, y):
    def loss(w):
        predicted = jnp.tanh(x @ w["a"]) @ w["b"]
        return jnp.mean((predicted - y) ** 2), predicted

    (value, predicted), gradients = jax.value_and_grad(loss, has_aux=True)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients), value, predicted


def assert_same(found, expected, tolerance=1e-5):
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)  # noqa: E731
    jax.tree.map(close, found, expected)


def loops_of(lowered) -> list[int]:
    """Trip counts of the loops in the program's own scope."""
    return [s.trips for s in lowered.traced.program.scopes[1:] if s.kind == "body" and s.parent == 0]


SCHEDULES = [pytest.param([], id="alone", marks=pytest.mark.slow), pytest.param([BP], id="BP")]


@pytest.mark.parametrize("steps", [slow(2), 4, slow(8)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_in_microbatches_gives_the_numbers_of_the_whole_step(steps, schedule):
    lowered = ap.jit(step, MESH, [*schedule, ap.Microbatch({"x": 0, "y": 0}, steps)]).lower(W, X, Y)
    assert loops_of(lowered) == [steps]
    assert_same(lowered.compile()(W, X, Y), step(W, X, Y))
    assert_same(lowered.interpret(W, X, Y), step(W, X, Y))


def test_gradients_are_reduced_once_after_the_loop():
    whole = ap.jit(step, MESH, [BP]).lower(W, X, Y)
    looped = ap.jit(step, MESH, [BP, ap.Microbatch({"x": 0, "y": 0}, 4)]).lower(W, X, Y)
    assert looped.program.collectives() == whole.program.collectives() == {"all_reduce": 3}


def tied(w, x, y):
    """Reads `a` three times: its gradient adds up three sums over the batch."""

    def loss(w):
        a = w["a"]
        return jnp.mean((jnp.tanh(jnp.tanh(x @ a) @ a.T) @ a @ w["b"] - y) ** 2)

    gradients = jax.grad(loss)(w)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradients)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sums_that_are_only_added_to_each_other_share_an_accumulator(schedule):
    lowered = ap.jit(tied, MESH, [*schedule, ap.Microbatch({"x": 0, "y": 0}, 4)]).lower(W, X, Y)
    program = lowered.traced.program
    carries = [program.spec(op).kind for op in range(program.op_count)].count("carry")
    assert carries == 1 + len(W)  # the step, and one for each gradient
    assert_same(lowered.compile()(W, X, Y), tied(W, X, Y))
    assert_same(lowered.interpret(W, X, Y), tied(W, X, Y))


def test_a_sum_that_is_read_elsewhere_too_keeps_its_accumulator():
    def sums(x):
        one, two = jnp.sum(x), jnp.sum(jnp.square(x))
        return one, one + two, jnp.sqrt(two)

    lowered = ap.jit(sums, MESH, [ap.Microbatch({"x": 0}, 4)]).lower(X)
    program = lowered.traced.program
    assert [program.spec(op).kind for op in range(program.op_count)].count("carry") == 1 + 2
    assert_same(lowered.compile()(X), sums(X))


def test_wherever_the_tactic_stands_the_result_is_the_same():
    split = ap.Microbatch({"x": 0, "y": 0}, 4)
    texts = {ap.jit(step, MESH, order).lower(W, X, Y).as_text("hlo") for order in ([BP, split], [split, BP])}
    assert len(texts) == 1


def test_what_is_tiled_over_devices_too_is_read_where_it_is():
    """A microbatch has rows of each device's share, so that none is sent anywhere."""
    lowered = ap.jit(lambda x: x * 2, MESH, [ap.ManualPartition({"x": 0}, axis="d"), ap.Microbatch({"x": 0}, 2)])
    assert not lowered.lower(X).program.collectives()


def test_one_step_leaves_the_program_as_it_is():
    one, none = (ap.jit(step, MESH, s).lower(W, X, Y) for s in ([ap.Microbatch({"x": 0}, 1)], []))
    assert one.traced.program.fingerprint == none.traced.program.fingerprint


def test_random_numbers_are_those_of_the_whole_batch():
    def dropout(key, x):
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)

    key = jax.random.key(1)
    found = ap.jit(dropout, MESH, [ap.Microbatch({"x": 0}, 4), ap.ManualPartition({"x": 0}, axis="d")])(key, X)
    np.testing.assert_array_equal(found, dropout(key, X))


@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.any, jnp.all])
def test_every_reduction_over_the_batch_accumulates(reduce):
    x = X > 0 if reduce in (jnp.any, jnp.all) else X
    lowered = ap.jit(lambda x: reduce(x, axis=0), MESH, [ap.Microbatch({"x": 0}, 4)]).lower(x)
    assert loops_of(lowered) == [4]
    assert_same(lowered.compile()(x), reduce(x, axis=0))


def test_a_scan_inside_accumulates_the_gradient_of_each_layer():
    def train(w, x):
        def loss(w):
            return jnp.sum(lax.scan(lambda h, layer: (jnp.tanh(h @ layer), None), x, w)[0] ** 2)

        return w - 0.1 * jax.grad(loss)(w)

    w, x = RNG.normal(size=(3, 4, 4)).astype("f4"), X
    lowered = ap.jit(train, MESH, [BP_X, ap.Microbatch({"x": 0}, 4)], donate_argnums=0).lower(w, x)
    assert loops_of(lowered) == [4]
    assert_same(lowered.compile()(jnp.array(w), x), train(w, x), 1e-4)


BP_X = ap.ManualPartition({"x": 0}, axis="d")


def test_positions_along_the_batch_are_those_of_the_whole():
    def program(x, rows):
        return x + jnp.arange(32.0)[:, None], x[jnp.arange(32), jnp.arange(32) % 4], x[rows]

    rows = RNG.integers(0, 32, 6)
    lowered = ap.jit(program, MESH, [ap.Microbatch({"x": 0}, 4), BP_X]).lower(X, rows)
    assert_same(lowered.compile()(X, rows), program(X, rows))


def batch_norm(x, w):
    h = x @ w
    return ((h - h.mean(0)) / (h.std(0) + 1)) @ w.T


def test_an_op_that_needs_the_whole_batch_in_the_middle_is_named_with_its_line_and_what_would_do():
    with pytest.raises(ap.BlockedError) as caught:
        ap.jit(batch_norm, MESH, [BP_X, ap.Microbatch({"x": 0}, 4, name="MB")]).lower(X, W["a"])
    said = str(caught.value)
    assert "needs a sum over the batch in the middle of the loop  at" in said
    assert "test_microbatch.py:" in said
    assert 'Microbatch "MB" (tactic 2 of 2)' in said
    assert "loops=3" in said


def test_as_many_loops_as_the_error_says_do():
    lowered = ap.jit(batch_norm, MESH, [BP_X, ap.Microbatch({"x": 0}, 4, loops=3)]).lower(X, W["a"])
    assert loops_of(lowered) == [4, 4, 4]
    assert_same(lowered.compile()(X, W["a"]), batch_norm(X, W["a"]))


@pytest.mark.parametrize(
    ("inputs", "steps", "error", "says"),
    [
        ({"x": 0}, 5, ap.TileError, "cannot tile x: f32[32,4] on dim 0 into 5 microbatches"),
        ({"z": 0}, 4, ap.UnknownNameError, 'the name "z"'),
        ({"x": 2}, 4, ap.TileError, "it has 2 dims"),
        ({"outputs": 0}, 4, ap.ArgumentError, "no argument"),
        ({}, 4, ap.ArgumentError, "no op is tiled"),
    ],
)
def test_bad_input_is_refused(inputs, steps, error, says):
    with pytest.raises(error) as caught:
        ap.jit(lambda x: jnp.sin(x) * 2, MESH, [ap.Microbatch(inputs, steps)]).lower(X)
    assert says in str(caught.value)


@pytest.mark.parametrize("fields", [{"steps": 0}, {"steps": "4"}, {"steps": 2, "loops": 0}])
def test_steps_and_loops_are_positive_numbers(fields):
    with pytest.raises(ap.ArgumentError, match="Microbatch"):
        ap.Microbatch({"x": 0}, **fields)


def test_two_of_them_are_refused():
    split = ap.Microbatch({"x": 0}, 2)
    with pytest.raises(ap.ArgumentError, match=r"one ap\.Microbatch"):
        ap.jit(step, MESH, [split, split])


def test_in_a_seed_of_a_search_it_is_refused():
    mesh = ap.Mesh({"d": 4}, device="tpu_v3")
    auto = ap.AutomaticPartition(["d"], budget=ap.Budget(4), seeds=[[ap.Microbatch({"x": 0}, 2)]], progress=False)
    with pytest.raises(ap.ArgumentError, match="cannot stand in seed 1"):
        ap.jit(step, mesh, [auto]).lower(W, X, Y)


def test_a_search_may_follow_it_and_its_code_has_both():
    mesh = ap.Mesh({"d": 4}, device="tpu_v3")
    auto = ap.AutomaticPartition(["d"], optimizer="greedy", budget=ap.Budget(8), progress=False, cache=False)
    lowered = ap.jit(step, mesh, [ap.Microbatch({"x": 0, "y": 0}, 4), auto]).lower(W, X, Y)
    assert loops_of(lowered) == [4]
    assert 'ap.Microbatch({"x": 0, "y": 0}, steps=4),' in lowered.metadata.as_schedule()


def test_a_reshape_that_cannot_be_cut_into_so_many_microbatches_is_named():
    def summed(w, x):
        return lax.scan(lambda total, rows: (total + jnp.sum(rows @ w), None), 0.0, x.reshape(4, 8, 4))[0]

    with pytest.raises(
        ap.BlockedError, match=r"(?s)no op is tiled.*reshape f32\[32,4\] -> f32\[4,8,4\] at .*test_microbatch"
    ):
        ap.jit(summed, MESH, [ap.Microbatch({"x": 0}, 32)]).lower(np.ones((4, 4), "f4"), X)


# ---- whole programs: what needs no activations is computed before the loop


def masked_step(p, ema, x, mask):
    def loss(p):
        error = ((jnp.tanh(x @ p["a"]) @ p["b"]) ** 2).mean(-1)
        kept = (mask > 0).astype(jnp.float32)
        return (error * kept).sum() / jnp.maximum(kept.sum(), 1)

    value, grads = jax.value_and_grad(loss)(p)
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
    p = jax.tree.map(lambda p, g: p - 0.1 * g / jnp.maximum(norm, 1), p, grads)
    ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, ema, p)
    return p, ema, {"loss": value, "norm": norm, "tokens": (mask > 0).sum(), "share": (mask > 0).mean()}


P = {"a": RNG.normal(size=(8, 16)).astype(np.float32), "b": RNG.normal(size=(16, 4)).astype(np.float32)}
ROWS = RNG.normal(size=(32, 8)).astype(np.float32)
MASK = (RNG.normal(size=32) > 0).astype(np.int32)


@pytest.mark.parametrize("schedule", [[], [ap.ManualPartition({"x": 0, "mask": 0}, axis="d")]])
def test_a_masked_mean_a_norm_an_average_and_metrics_go_through_one_loop(schedule):
    lowered = ap.jit(masked_step, MESH, [ap.Microbatch({"x": 0, "mask": 0}, 4), *schedule]).lower(P, P, ROWS, MASK)
    assert loops_of(lowered) == [4]
    assert_same(lowered.compile()(P, P, ROWS, MASK), masked_step(P, P, ROWS, MASK))
    (remark,) = (line for line in lowered.metadata.remarks if "before the loop" in line)
    assert "needs no activations: reduce  test_microbatch.py:" in remark


def test_a_mask_made_of_activations_stays_in_the_loop():
    def gated(x, w):
        h = x @ w
        kept = (h[:, 0] > 0).astype(jnp.float32)
        return (h.sum(1) * kept / jnp.maximum(kept.sum(), 1)).sum()

    with pytest.raises(ap.BlockedError, match="loops=2"):
        ap.jit(gated, MESH, [ap.Microbatch({"x": 0}, 4)]).lower(X, W["a"])


def searched(fun):
    auto = ap.AutomaticPartition(microbatch=(1, 2), budget=ap.Budget(4), cache=False)
    args = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((256, 256), (8192, 256))]
    return ap.jit(fun, ap.Mesh({"batch": 4}, device="tpu_v3"), [auto]).lower(*args).metadata


def test_a_search_goes_through_the_batch_twice_where_once_does_not_do():
    def centred(w, x):
        h = jnp.tanh(x @ w)
        return jnp.tanh(h - h.mean(0)) @ w.T

    (tactic,) = searched(centred).tactics
    assert any("steps=2, loops=2" in row["program"] and "step_s" in row for row in tactic.report["programs"])


def test_what_a_search_left_out_is_a_remark():
    def thrice(w, x):
        h = x @ w
        h = jnp.tanh(h - h.mean(0))
        return jnp.tanh(h - h.mean(0)) @ w.T

    assert "left out: ap.Microbatch(" in str(searched(thrice))
