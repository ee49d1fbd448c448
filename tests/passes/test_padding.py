"""Is what an axis does not divide padded where it pays and only there, and is the padding read by nothing of weight?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap
from tests.prompt import in_turn

MESH = ap.Mesh({"a": 4, "b": 2})
R = np.random.default_rng(0)
X = R.normal(size=(6, 10)).astype("f4")
ROWS = ap.ManualPartition({"x": 0}, axis="a", uneven="pad", name="rows")
COLUMNS = ap.ManualPartition({"x": 1}, axis="a", uneven="pad", name="columns")
PLACES = R.integers(-12, 12, (6, 3))

FORMS = {
    "sums and extremes": lambda x: [x.sum(1), x.max(1), x.min(0), (x / 3).prod(1), jnp.argmax(x, 1), x.mean()],
    "bits": lambda x: [(x > 0).any(1), (x > -1).all(0), jnp.bitwise_and.reduce((10 * x).astype(int), axis=1)],
    "softmax": lambda x: jax.nn.softmax(x * 100, axis=1),
    "logarithms of what is added": lambda x: jnp.log(jnp.abs(x)).sum(1),
    "matmuls": lambda x: [x @ x.T, x.T @ x, jnp.einsum("ij,ij->j", x, x)],
    "look-ups past the end": lambda x: [x.at[PLACES].get(mode="clip"), x[PLACES]],
    "look-ups in rows": lambda x: jnp.take_along_axis(x, PLACES % 10, 1),
    "updates": lambda x: [x.at[1:3].add(1), x.at[PLACES].set(0, mode="drop")],
    "updates past the end": lambda x: lax.dynamic_update_slice(x, x[:2], (5, 0)),
    "slices": lambda x: [x[1:], x[:, ::2], lax.dynamic_slice(x, (5, 0), (2, 10)), jnp.concatenate([x, x + 1]), x[::-1]],
    "orders": lambda x: [jnp.sort(x, 1), jnp.cumsum(x, 0), lax.top_k(x, 2)],
    "shapes": lambda x: [x.reshape(3, 2, 10), x.reshape(-1), x.reshape(60, 1) + 1, x.T, jnp.pad(x, 1), x[:, None]],
    "windows": lambda x: lax.conv_general_dilated(x[:, None], jnp.ones((2, 1, 3)), (1,), "SAME"),
    "loops": lambda x: [
        lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y) + i, x),
        lax.scan(lambda c, row: (c + row.sum(), row * c), 0.0, x),
        lax.cond(x[0, 0] > 0, lambda x: x * 2, lambda x: x.sort(1), x),
        lax.while_loop(lambda y: y.sum() < 99, lambda y: y + 1, x),
    ],
    "gradients": lambda x: jax.grad(lambda x: jnp.mean(jax.nn.log_softmax(x @ x.T) ** 2) + x[PLACES].sum())(x),
    "halves": lambda x: [x.astype(jnp.bfloat16).sum(1), x.astype(jnp.float16).max(0)],
    "barriers and checkpoints": lambda x: jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sin(x).sum())(x))(x),
}  # fmt: skip


SCHEDULES = {"rows": [ROWS], "columns": [COLUMNS], "both": [ROWS, ap.ManualPartition({"x": 1}, axis="b")]}


@pytest.mark.parametrize(("name", "schedule"), in_turn(FORMS, SCHEDULES))
def test_tiles_of_dims_that_an_axis_does_not_divide_keep_the_numbers(name, schedule):
    fun = FORMS[name]
    found, whole = ap.jit(fun, MESH, SCHEDULES[schedule])(X), jax.jit(fun)(X)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
        assert got.shape == want.shape
        got, want = (np.asarray(v, np.float64) for v in (got, want))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


VOCABULARY, WIDTH = 51, 16


def loss(params, tokens, labels):
    logits = jnp.tanh(params["table"][tokens]) @ params["table"].T + params["bias"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(chosen)


def adam(params, m, v, tokens, labels):
    """One step, with moments of the parameters' shapes."""
    value, grads = jax.value_and_grad(loss)(params, tokens, labels)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    params = jax.tree.map(lambda p, m, v: p - 0.1 * m / (jnp.sqrt(v) + 1e-3), params, m, v)
    return params, m, v, value


PARAMS = {"table": R.normal(size=(VOCABULARY, WIDTH)).astype("f4"), "bias": R.normal(size=VOCABULARY).astype("f4")}
TOKENS = R.integers(0, VOCABULARY, (6, 8))
STEP = (PARAMS, jax.tree.map(np.zeros_like, PARAMS), jax.tree.map(np.zeros_like, PARAMS), TOKENS, TOKENS[::-1].copy())
VOCABULARY_PARALLEL = ap.ManualPartition({"params": {"table": 0}}, axis="a", uneven="pad", name="vocabulary")


def test_of_a_vocabulary_only_the_gradient_is_gathered():
    low = ap.jit(adam, MESH, [VOCABULARY_PARALLEL]).lower(*STEP)
    [gathered] = [row.bytes for row in low.metadata.gathered if row.bytes > 52 * 4]
    assert gathered == 52 * WIDTH * 4 * 3 / 4
    text = low.as_text("program")
    assert "6x8x51x" not in text
    assert "6x8x52x" in text
    for got, want in zip(jax.tree.leaves(low.compile()(*STEP)), jax.tree.leaves(jax.jit(adam)(*STEP)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_a_batch_that_does_not_divide_costs_the_collectives_of_one_that_does():
    batch = {"tokens": 0, "labels": 0}
    uneven = ap.jit(adam, MESH, [ap.ManualPartition(batch, axis="a", uneven="pad")]).lower(*STEP)
    even = ap.jit(adam, MESH, [ap.ManualPartition(batch, axis="b")]).lower(*STEP)
    assert +uneven.program.collectives() == +even.program.collectives()
    assert uneven.metadata.flop_divided["a"] > 0.9


def test_state_that_is_asked_for_is_padded_with_what_it_meets():
    state = {"params": {"table": 0}, "m": {"table": 0}, "v": {"table": 0}}
    low = ap.jit(adam, MESH, [ap.ManualPartition(state, axis="a", uneven="pad")]).lower(*STEP)
    for got, want in zip(jax.tree.leaves(low.compile()(*STEP)), jax.tree.leaves(jax.jit(adam)(*STEP)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_axes_of_one_dim_are_multiplied_and_what_divides_stays_as_it_is():
    def shapes(*schedule):
        text = ap.jit(lambda x: jnp.sin(x) @ jnp.ones((10, 3)), MESH, list(schedule)).lower(X).as_text("program")
        return "8x10" in text, "pad(" in text

    assert shapes(ROWS, ap.ManualPartition({"x": 0}, axis="b", uneven="pad")) == (True, True)
    assert shapes(ap.ManualPartition({"x": 0}, axis="b", uneven="pad")) == (False, False)
    assert shapes(ap.Pad({"x": (0, 4)})) == (True, True)
    assert shapes(ap.Pad({"x": (0, 3)})) == (False, False)


def test_a_plan_and_code_pad_again(tmp_path):
    low = ap.jit(adam, MESH, [VOCABULARY_PARALLEL]).lower(*STEP)
    low.plan.save(tmp_path / "plan.json")
    again = ap.jit(adam, MESH, ap.Plan.load(tmp_path / "plan.json")).lower(*STEP)
    assert again.as_text("hlo") == low.as_text("hlo")
    code: dict = {"ap": ap}
    exec(low.metadata.as_schedule(), code)
    assert ap.jit(adam, MESH, code["schedule"]).lower(*STEP).as_text("hlo") == low.as_text("hlo")


def test_a_search_tiles_what_is_longer():
    budget = ap.Budget(evaluations=60)
    mesh = ap.Mesh({"a": 4}, device="tpu_v3")
    big = jax.ShapeDtypeStruct((50257, 511), "float32")
    x = jax.ShapeDtypeStruct((4093, 511), "float32")

    def scores(table, x):
        return jax.nn.softmax(x @ table.T).max(-1)

    def step_s(*schedule):
        return (
            ap.jit(scores, mesh, [*schedule, ap.AutomaticPartition(["a"], budget=budget)]).lower(big, x).estimate.step_s
        )

    assert step_s(ap.Pad({"table": (0, 128)})) < 0.9 * step_s()


def test_wrong_decisions_say_what_is_right():
    def lowered(*schedule):
        return ap.jit(lambda x: jnp.sin(x), MESH, list(schedule)).lower(X)

    with pytest.raises(ap.TileError, match=r'6 is not a multiple of 4[\s\S]*uneven="pad"'):
        lowered(ap.ManualPartition({"x": 0}, axis="a"))
    with pytest.raises(ap.TileError, match=r"\(dim, multiple\), with a dim from 0 to 1"):
        lowered(ap.Pad({"x": (2, 4)}))
    with pytest.raises(ap.TileError, match=r"Pad[\s\S]*\(dim, multiple\)"):
        lowered(ap.Pad({"x": 0}))
    with pytest.raises(ap.UnknownNameError, match='"y"'):
        lowered(ap.Pad({"y": (0, 4)}))
    with pytest.raises(ap.ArgumentError, match='"refuse" or "pad"'):
        ap.ManualPartition({"x": 0}, axis="a", uneven="stretch")


def test_a_pad_that_the_model_writes_is_no_twin():
    step = ap.jit(lambda x: jnp.sin(jnp.pad(x, ((0, 2), (0, 0)))), MESH, [ap.ManualPartition({"x": 0}, axis="a")])
    with pytest.raises(ap.TileError, match="6 is not a multiple of 4"):
        step.lower(X)
