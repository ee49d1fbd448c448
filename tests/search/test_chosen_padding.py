"""Does a search make dims longer that its axes do not divide, where that pays and only there, and say so?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.api.programs.uneven_dims import uneven_dims

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3")
VOCABULARY, ROWS = 16387, 66


def loss(params, tokens, labels):
    logits = jnp.tanh(params["table"][tokens] @ params["mix"]) @ params["table"].T
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))


def step(params, momentum, tokens, labels):
    value, gradients = jax.value_and_grad(loss)(params, tokens, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum, value


def args(vocabulary, rows, width=64):
    params = {
        "table": jax.ShapeDtypeStruct((vocabulary, width), "f4"),
        "mix": jax.ShapeDtypeStruct((width, width), "f4"),
    }
    tokens = jax.ShapeDtypeStruct((rows,), "i4")
    return params, params, tokens, tokens


def lower(sizes, schedule=(), **wanted):
    auto = ap.AutomaticPartition(["batch", "model"], budget=ap.Budget(10), cache=False, name="auto", **wanted)
    return ap.jit(step, MESH, [*schedule, auto], donate_argnums=(0, 1)).lower(*args(*sizes))


@pytest.fixture(scope="module")
def found():
    return lower((VOCABULARY, ROWS), uneven="pad")


def test_dims_that_no_axis_divides_are_made_longer_where_that_is_faster():
    sizes = (50257, 9234, 1024)
    found = lower(sizes, uneven="pad")
    report = found.metadata.tactics[-1].report
    assert report["program"] == "ap.Pad({'tokens': [(0, 8)], 'labels': [(0, 8)], 'params/table': [(0, 8)]})"
    assert found.estimate.step_s < 0.8 * lower(sizes).estimate.step_s
    assert found.estimate.step_s <= min(row["step_s"] for row in report["programs"])
    assert report["programs"][0]["program"] == "as it is"


def test_the_numbers_stay(found):
    assert "ap.Pad" in found.metadata.tactics[-1].report["program"]
    rng = np.random.default_rng(0)

    def draw(a):
        return (
            rng.integers(0, VOCABULARY, a.shape, "i4") if a.dtype == "i4" else rng.normal(size=a.shape).astype("f4") / 8
        )

    given = jax.tree.map(draw, args(VOCABULARY, ROWS))
    got, expected = found.compile()(*given), jax.jit(step)(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), got, expected)


def test_the_plan_and_the_code_pad_again(found, tmp_path):
    found.plan.save(tmp_path / "plan.json")
    code: dict = {"ap": ap}
    exec(found.metadata.as_schedule(), code)
    for schedule in (ap.Plan.load(tmp_path / "plan.json"), code["schedule"]):
        again = ap.jit(step, MESH, schedule, donate_argnums=(0, 1)).lower(*args(VOCABULARY, ROWS))
        assert again.as_text("hlo") == found.as_text("hlo")


def test_code_says_whether_a_name_stands_for_what_is_longer():
    mesh, x = ap.Mesh({"a": 4, "b": 2}), jax.ShapeDtypeStruct((6, 8), "f4")
    padded = [ap.Pad({"x": (0, 8)}), ap.ManualPartition({"x": 0}, "a")]
    longer = ap.jit(lambda x: jnp.sin(x) @ x.T, mesh, [*padded, ap.ManualPartition({"x": 0}, "b")]).lower(x)
    short = ap.jit(lambda x: jnp.sin(x) @ x.T, mesh, [*padded, ap.ManualPartition({"%0": 0}, "b")]).lower(x)
    assert short.as_text("hlo") != longer.as_text("hlo")
    for low in (longer, short):
        code: dict = {"ap": ap}
        exec(low.metadata.as_schedule(), code)
        assert ap.jit(lambda x: jnp.sin(x) @ x.T, mesh, code["schedule"]).lower(x).as_text("hlo") == low.as_text("hlo")


def test_what_the_axes_divide_is_one_program():
    report = lower((1024, 16), uneven="pad").metadata.tactics[-1].report
    assert [row["program"] for row in report["programs"]] == ["as it is"] * 2
    assert report["program"] == "as it is"


def test_padding_that_does_not_pay_is_left_out():
    auto = ap.AutomaticPartition(["batch", "model"], budget=ap.Budget(10), cache=False, uneven="pad")
    x, w = jax.ShapeDtypeStruct((8192, 4099), "f4"), jax.ShapeDtypeStruct((4099, 64), "f4")
    low = ap.jit(lambda x, w: jnp.tanh(x @ w), MESH, [auto]).lower(x, w)
    report = low.metadata.tactics[-1].report
    assert report["program"] == "as it is"
    assert any("ap.Pad" in row["program"] for row in report["programs"])


def test_microbatches_and_recomputation_are_chosen_beside_it():
    report = (
        lower((VOCABULARY, ROWS), uneven="pad", microbatch=(1, 2), recompute=["blocks"]).metadata.tactics[-1].report
    )
    programs = [row["program"] for row in report["programs"]]
    assert any("ap.Pad" in program and "ap.Microbatch" in program for program in programs)
    assert any("ap.Pad" in program and "ap.Recompute" in program for program in programs)


def test_what_is_asked_for_is_as_long_as_few_rows_more_allow():
    def asked(size, axes):
        shapes = [jax.ShapeDtypeStruct(s, "f4") for s in ((size, 128), (128, size))]
        program = ap.jit(lambda x, w: x @ w, ap.Mesh(axes)).lower(*shapes).scheduled.partitioning.program
        return [dict(pad.inputs) for pad in uneven_dims(program, ap.Mesh(axes), list(axes))]

    assert asked(50257, {"a": 4, "b": 8}) == [{"x": [(0, 32)], "w": [(1, 32)]}]
    assert asked(25, {"a": 4, "b": 4}) == [{"x": [(0, 4)], "w": [(1, 4)]}]
    assert asked(6, {"a": 4}) == [{"x": [(0, 4)], "w": [(1, 4)]}]
    assert asked(3, {"a": 4}) == asked(64, {"a": 4}) == []


def test_layers_are_named_by_one_glob():
    def deep(params, x):
        for w in params:
            x = jnp.tanh(x @ w)
        return x

    shapes = [jax.ShapeDtypeStruct((129, 129), "f4")] * 3, jax.ShapeDtypeStruct((64, 129), "f4")
    program = ap.jit(deep, ap.Mesh({"a": 4})).lower(*shapes).scheduled.partitioning.program
    [pad] = uneven_dims(program, ap.Mesh({"a": 4}), ["a"])
    assert pad.inputs == {"params/*": [(0, 4), (1, 4)], "x": [(1, 4)]}


@pytest.mark.parametrize("tactic", [ap.Pad({"params/table": (0, 8)}),
                                    ap.ManualPartition({"params/table": 0}, "model", uneven="pad")])  # fmt: skip
def test_dims_are_padded_by_the_search_or_by_a_tactic(tactic):
    with pytest.raises(ap.ArgumentError, match="chooses the program too"):
        lower((VOCABULARY, ROWS), [tactic], uneven="pad")


def test_a_seed_cannot_choose_the_program():
    seed = ap.AutomaticPartition("batch", uneven="pad")
    with pytest.raises(ap.ArgumentError, match="choose between programs"):
        lower((1024, 16), seeds=[[seed]])
    with pytest.raises(ap.ArgumentError, match='"refuse" or "pad"'):
        ap.AutomaticPartition("batch", uneven="stretch")
