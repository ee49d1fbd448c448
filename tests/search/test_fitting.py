"""Does a search choose microbatches and recomputation together with tilings, and say so?"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autopart as ap

MANY = 2**21
"""Rows whose residuals do not fit in two devices of 16 GB."""

LAYERS, WIDTH = 6, 64


def step(params, x):
    def loss(params):
        y, _ = lax.scan(lambda y, w: (y + jnp.sin(jnp.tanh(y @ w["a"])) @ w["b"], None), x, params)
        return jnp.mean(y**2)

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def args(rows, width=WIDTH):
    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")  # noqa: E731
    return {"a": f32(LAYERS, width, 4 * width), "b": f32(LAYERS, 4 * width, width)}, f32(rows, width)


def lower(rows, schedule=(), width=WIDTH, **wanted):
    auto = ap.AutomaticPartition("d", budget=ap.Budget(12), cache=False, name="auto", **wanted)
    mesh = ap.Mesh({"d": 2}, device="tpu_v3")
    return ap.jit(step, mesh, [*schedule, auto], donate_argnums=0).lower(*args(rows, width))


BOTH = {"microbatch": (1, 2, 4), "recompute": True}


def test_of_programs_that_fit_the_fastest_is_taken():
    lowered = lower(64, **BOTH)
    rows = lowered.metadata.tactics[-1].report["programs"]
    assert lowered.estimate.fits
    assert lowered.estimate.step_s <= min(row["step_s"] for row in rows if "step_s" in row)


def test_what_does_not_fit_is_rewritten_until_it_does():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        assert not lower(MANY).estimate.fits
    lowered = lower(MANY, **BOTH)
    report = lowered.metadata.tactics[-1].report
    assert lowered.estimate.fits
    assert "ap.Recompute" in report["program"] or "ap.Microbatch" in report["program"]
    assert report["programs"][0]["program"] == "as it is"
    assert len(report["programs"]) >= 9
    assert report["program"] in lowered.metadata.tactics[-1].notes[-1]


def test_memory_that_is_left_keeps_the_results_that_save_most():
    report = lower(2**17, width=1024, recompute=True).metadata.tactics[-1].report
    rows = {row["program"]: row for row in report["programs"]}
    found = rows[report["program"]]
    assert report["program"].startswith("ap.Recompute([")
    assert found["step_s"] < min(rows[f"ap.Recompute('{policy}')"]["step_s"] for policy in ("blocks", "matmuls"))
    assert found["peak_bytes"] <= 0.75 * 16 * 2**30


def test_the_batch_is_found_and_the_numbers_stay():
    lowered = lower(64, microbatch=(4,))
    assert lowered.metadata.tactics[-1].report["program"] == "ap.Microbatch({'x': 0}, steps=4)"
    rng = np.random.default_rng(0)
    given = jax.tree.map(lambda a: (rng.normal(size=a.shape) / 8).astype("f4"), args(64))
    found, expected = lowered.compile()(*given), jax.jit(step)(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)


def test_policies_may_be_given():
    report = lower(MANY, recompute=["blocks"]).metadata.tactics[-1].report
    assert {row["program"] for row in report["programs"]} == {"as it is", "ap.Recompute('blocks')"}


def test_steps_that_do_not_divide_are_reported_and_left_out():
    report = lower(64, microbatch=(1, 3)).metadata.tactics[-1].report
    assert report["program"] == "as it is"
    [why] = [row["why"] for row in report["programs"] if "why" in row]
    assert why == (
        "ap.Microbatch({'x': 0}, steps=3): cannot tile x: f32[64,64] on dim 0 into 3 microbatches "
        "(64 is not a multiple of 3)"
    )


def test_steps_none_of_which_divides_are_an_error_that_says_so():
    with pytest.raises(ap.ArgumentError, match=r"64 is not a multiple of 3\)\n.*64 is not a multiple of 9"):
        lower(64, microbatch=(3, 9))


def test_a_program_without_a_batch_says_that_nothing_is_cut():
    search = ap.AutomaticPartition("d", microbatch=(1, 2), budget=ap.Budget(5), cache=False)
    fun = ap.jit(lambda w: w * 2, ap.Mesh({"d": 2}, device="tpu_v3"), [search], donate_argnums=0)
    report = fun.lower(jax.ShapeDtypeStruct((), "float32")).metadata.tactics[-1].report
    assert [row["why"] for row in report["programs"] if "why" in row]


@pytest.mark.parametrize("tactic", [ap.Microbatch({"x": 0}, 2), ap.Recompute()])
def test_a_program_is_rewritten_by_the_search_or_by_a_tactic(tactic):
    with pytest.raises(ap.ArgumentError, match="chooses the program too"):
        lower(64, [tactic], **BOTH)


def test_a_seed_cannot_choose_the_program():
    seed = ap.AutomaticPartition("d", microbatch=(1, 2))
    with pytest.raises(ap.ArgumentError, match="choose between programs"):
        lower(64, seeds=[[seed]])


def test_where_nothing_fits_the_warning_says_what_holds_memory_and_what_would_fit():
    with pytest.warns(ap.SearchWarning, match="nothing found fits") as caught:
        lowered = lower(MANY)
    [text] = [str(warning.message) for warning in caught]
    assert "test_fitting.py" in text
    [line] = [
        line for line in text.splitlines() if line.strip().endswith("ap.Recompute('blocks')") and "steps" not in line
    ]
    assert "GB  fits" in line
    assert "ap.Mesh({'d': 4}, device='tpu_v3')" in text
    assert lowered.metadata.tactics[-1].report["advice"]


def test_advice_names_optimizer_state_that_could_be_narrower():
    def adam(state, x):
        gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(state["params"])
        momentum = 0.9 * state["momentum"] + gradient
        return {"params": state["params"] - momentum, "momentum": momentum}

    def train(params, momentum, x):
        made = adam({"params": params, "momentum": momentum}, x)
        return made["params"], made["momentum"]

    w = jax.ShapeDtypeStruct((2**17, 2**16), "float32")
    mesh = ap.Mesh({"d": 2}, device="tpu_v3")
    auto = ap.AutomaticPartition("d", budget=ap.Budget(4), cache=False)
    with pytest.warns(ap.SearchWarning, match="nothing found fits") as caught:
        ap.jit(train, mesh, [auto], donate_argnums=(0, 1)).lower(w, w, jax.ShapeDtypeStruct((64, 2**17), "float32"))
    assert "momentum in bf16: 8.59 GB less" in str(caught[-1].message)


def test_the_plan_and_the_code_of_a_chosen_program_write_it_again(tmp_path):
    lowered = lower(MANY, **BOTH)
    lowered.plan.save(tmp_path / "plan.json")
    code: dict = {"ap": ap}
    exec(lowered.metadata.as_schedule(), code)
    for schedule in (ap.Plan.load(tmp_path / "plan.json"), code["schedule"]):
        again = ap.jit(step, ap.Mesh({"d": 2}, device="tpu_v3"), schedule, donate_argnums=0).lower(*args(MANY))
        assert again.estimate.step_s == lowered.estimate.step_s
        assert again.estimate.peak_bytes == lowered.estimate.peak_bytes
